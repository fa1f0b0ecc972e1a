// Membership's numbers. Every duration is of the monotonic clock that counts suspends (CLOCK_BOOTTIME).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/broken_rule.h"
#include "common/base/time.h"

namespace dtrain::gossip {

struct Options {
  // Probing: one neighbour each period in turn; every random_every-th probe goes to the next of a shuffled
  // pass over all.
  Duration probe_period = 1s;
  Duration probe_deadline = 500ms;  // direct answer; then helpers are asked
  Duration probe_total = 1s;        // no answer by then: suspect. Both are multiplied by local health + 1
  Duration connect_deadline = 3s;   // a link that was not up yet is no evidence before that
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

  // Rumours.
  Duration batch = 20ms;                  // between two gossip rounds while there is something to say
  Duration paced = 100ms;                 // the same while there always is: fewer, fuller messages
  std::uint32_t quick_rounds = 8;         // that many rounds may follow each other at once before that
  std::uint32_t fanout = 4;               // neighbours per round
  std::uint32_t retransmit = 4;           // times ceil(log10(n + 1)) sends of each rumour
  std::size_t gossip_bytes = 8 << 10;     // rumours in one Gossip
  std::size_t piggyback_bytes = 1 << 10;  // rumours on a ping or pong
  std::size_t queue_rumours = 65'536;     // beyond: the most transmitted is dropped and counted

  // State sync with one random member; period * ceil(log2(n + 1)) / 5, at least period.
  Duration sync_period = 30s;
  std::uint32_t sync_buckets = 256;

  // Those who are gone.
  Duration retry_period = 2s;  // one dead, down or left-over address, or a seed, is tried; for ever
  Duration join_retry = 1s;    // seeds while no cluster is known; contacts of a node that comes back
  Duration reclaim =
      1h;  // after that a dead member's name and address may be another's, and its row is reaped
  Duration tombstone = 24h;         // its incarnation is remembered that long after the reaping
  std::size_t tombstones = 20'000;  // oldest forgotten beyond
  std::size_t book = 4096;          // addresses remembered for retries and restarts
  std::size_t members = 20'000;     // further ones are refused and counted
  Duration tick_gap = 2s;           // a gap in our own steps of more: we were stopped

  // --break: switches one protocol rule off, to show that tests and simulator notice. Empty in production.
  BrokenRule broken_rule{};
};

}  // namespace dtrain::gossip
