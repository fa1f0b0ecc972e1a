// Membership's numbers. Every duration is of the monotonic clock that counts suspends (CLOCK_BOOTTIME).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/broken_rule.h"
#include "common/base/time.h"

namespace dtrain::gossip {

struct MembershipOptions {
  // Probing: one neighbour each period in turn; every random_every-th probe goes to the next of a shuffled
  // pass over all.
  Duration probe_period = 1s;
  Duration probe_deadline = 500ms;  // for a direct answer; then helpers are asked
  Duration probe_total = 1s;        // for any answer; then the member is suspect. Both are multiplied by local health + 1
  Duration connect_deadline = 3s;   // before that, a link that was not up yet is no evidence
  std::uint32_t random_every = 30;  // a cold link costs a handshake
  std::uint32_t helpers = 3;
  std::uint32_t neighbour_rings = 4;  // one successor and one predecessor in each: up to 8 neighbours
  std::uint32_t warm_ahead = 2;       // random targets whose links are opened one pass ahead

  // Suspicion: timeout = max(min, max - (max - min) ln(C + 1) / ln(k + 1)), C confirmations of k wanted.
  Duration suspicion_min = 4700ms;
  Duration suspicion_max = 9400ms;
  std::uint32_t confirmations = 3;
  std::uint32_t gone_witnesses = 2;  // min(this, n - 1) refused connections decide "down"
  std::uint32_t health_max = 8;      // local health score, 0 is healthy

  // Freeze: more than this share of the members suspected, at least freeze_least of them, and fewer than a
  // majority left.
  std::uint32_t freeze_percent = 33;
  std::uint32_t freeze_least = 3;

  // ---- rumours
  Duration batch = 20ms;                  // between two gossip rounds while rumours wait
  Duration paced = 100ms;                 // between two rounds while rumours wait all the time: fewer, fuller messages
  std::uint32_t quick_rounds = 8;         // rounds that may follow each other at `batch` before `paced` applies
  std::uint32_t fanout = 4;               // neighbours per round
  std::uint32_t retransmit = 4;           // each rumour is sent this many times ceil(log10(n + 1)) times
  std::size_t gossip_bytes = 8 << 10;     // rumours in one Gossip
  std::size_t piggyback_bytes = 1 << 10;  // rumours on a ping or pong
  std::size_t queue_rumours = 65'536;     // beyond: the most transmitted is dropped and counted

  // State sync with one random member; period * ceil(log2(n + 1)) / 5, at least period.
  Duration sync_period = 30s;
  std::uint32_t sync_buckets = 256;

  // ---- members that are gone
  Duration retry_period = 2s;       // between retries of one dead, down or left-over address, or of a seed; for ever
  Duration join_retry = 1s;         // between attempts at seeds while no cluster is known, or at contacts of a node that comes back
  Duration reclaim = 1h;            // then a dead member's name and address may go to another, and its row is reaped
  Duration tombstone = 24h;         // how long its incarnation is remembered after the reaping
  std::size_t tombstones = 20'000;  // oldest forgotten beyond
  std::size_t book = 4096;          // addresses remembered for retries and restarts
  std::size_t members = 20'000;     // further ones are refused and counted
  Duration tick_gap = 2s;           // a longer gap between this node's own steps means that it was stopped

  // --break: switches one protocol rule off, to show that tests and simulator notice. Empty in production.
  BrokenRule broken_rule{};
};

}  // namespace dtrain::gossip
