// The behaviour of a simulated task, written in its argv, so that it travels through job spec, ledger and launch like
// the command of a real task.
//
//   sim tag=17 run=2000..9000 ok=80 code=3 ready=200 checkpoint=3000
//
// Times are milliseconds. Unknown words (rendered templates such as --ps_hosts=...) are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/base/time.h"
#include "common/job/exit.h"

namespace dtrain::sim {

struct Script {
  std::uint64_t tag = 0;              // number of the client's submit
  Duration run_min{1s}, run_max{1s};  // an attempt lives so long...
  std::uint32_t ok = 100;             // ... and exits 0 in this many of 100 cases,
  std::int32_t code = 1;              // otherwise with this code
  std::int32_t signal = 0;            // or, when not 0, by this signal
  bool forever = false;               // a ps: never ends by itself
  std::uint32_t hang = 0;             // in this many of 100 attempts it becomes silent instead of ending
  bool ignore_term = false;           // the stop signal does nothing
  Duration term{0};                   // how long it takes to obey the stop signal
  std::int32_t term_code = -1;        // exit code then; -1: death by the signal
  Duration ready{0};                  // after that time; 0: never
  Duration status{0};                 // STATUS= that often; 0: never
  Duration watchdog{0};               // WATCHDOG=1 that often, until it hangs; 0: never
  Duration checkpoint{0};             // a checkpoint that often; 0: never
  std::uint32_t torn = 0;             // of 100 checkpoints, so many are visibly incomplete
  std::uint32_t rotten = 0;           // of 100, so many pass the shallow check but do not verify
  std::uint32_t children = 0;         // processes beside the main one
  bool missing = false;               // the program does not exist
  std::string says;                   // one STATUS= right after READY=1
  std::string watches;                // a task of the same generation without which this one cannot continue: ps-0; "": none
  Duration leaves{0};                 // how long after the watched task ended without success this one gives up

  std::vector<std::string> argv() const;
  static Script parse(const std::vector<std::string>& argv);
};

// The course of one attempt if nothing interferes.
struct AttemptPlan {
  Duration lifetime{0};  // 0: it does not end by itself
  bool hangs = false;    // after `lifetime` it lives on silently
  job::Exit exit;
};
// calm: faults are over, and everything that can end does so soon and well.
AttemptPlan plan_attempt(const Script& script, bool calm, Rng& rng);

}  // namespace dtrain::sim
