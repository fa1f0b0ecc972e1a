#include "common/task/standby_plan.h"

#include <algorithm>
#include <utility>

namespace dtrain::task {

namespace {

constexpr const char* kMemoryIsShort = "memory is short";

}  // namespace

StandbyPlan::Entry* StandbyPlan::find(const Key& key) {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

// ---------------------------------------------------------------- the tasks

void StandbyPlan::add(const Key& key, std::uint32_t user) {
  entries_[key] = {};
  entries_[key].user = user;
}

void StandbyPlan::attempt_started(const Key& key, Instant now) {
  Entry* entry = find(key);
  if (entry == nullptr) return;
  entry->runs = true;
  entry->deaths = 0;
  if (entry->state == State::none) entry->due = now + kStandbyAfter;
}

bool StandbyPlan::attempt_ended(const Key& key, bool success) {
  Entry* entry = find(key);
  if (entry == nullptr) return false;
  entry->runs = false;
  if (success || entry->state == State::none) entry->due = kNever;
  return success && std::exchange(entry->state, State::none) != State::none;
}

void StandbyPlan::assignment_over(const Key& key, Instant now) {
  Entry* entry = find(key);
  if (entry == nullptr) return;
  entry->runs = false;
  // What is not ready when it is needed never was of use.
  entry->due = entry->state == State::waits ? std::min(entry->due, now + kStandbyStays) : now;
}

// ---------------------------------------------------------------- their standbys

bool StandbyPlan::waits(const Key& key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.state == State::waits;
}

void StandbyPlan::not_now(const Key& key, Instant now) {
  if (Entry* entry = find(key)) {
    entry->state = State::none;
    entry->due = now + kStandbyAfter;
  }
}

void StandbyPlan::ready(const Key& key, Instant now) {
  if (Entry* entry = find(key)) {
    entry->state = State::waits;
    entry->due = entry->runs ? kNever : now + kStandbyStays;
  }
}

void StandbyPlan::used(const Key& key) {
  if (Entry* entry = find(key)) entry->state = State::none;
}

void StandbyPlan::failed(const Key& key, Instant now) {
  Entry* entry = find(key);
  if (entry == nullptr) return;
  const bool again = entry->state == State::waits && entry->runs && entry->deaths++ < kStandbyDeaths;
  entry->state = State::none;
  entry->due = again ? now + kStandbyAfter : kNever;
}

bool StandbyPlan::any() const {
  return std::ranges::any_of(entries_, [](const auto& entry) { return entry.second.state != State::none; });
}

std::string StandbyPlan::why_none(const Entry& entry, bool short_of_memory) const {
  std::size_t all = 0, of_user = 0;
  for (const auto& [key, other] : entries_) {
    if (other.state == State::none) continue;
    ++all;
    of_user += other.user == entry.user ? 1 : 0;
  }
  if (all >= kStandbys || of_user >= kStandbysOfUser)
    return "this host has " + std::to_string(kStandbys) + " already, or " + std::to_string(kStandbysOfUser) + " of this user";
  return short_of_memory ? kMemoryIsShort : "";
}

std::vector<StandbyPlan::Step> StandbyPlan::steps(Instant now, std::optional<std::uint64_t> memory) {
  std::vector<Step> steps;
  const bool short_of_memory = memory.value_or(kLeastMemory) < kLeastMemory;
  const auto give_up = [&](const Key& key, Entry& entry, std::string cause) {
    entry.state = State::none;
    entry.due = kNever;
    steps.push_back({key, Act::give_up, std::move(cause)});
  };
  for (auto at = entries_.begin(); at != entries_.end();) {
    const Key& key = at->first;
    Entry& entry = (at++)->second;
    if (entry.state != State::none && short_of_memory) {
      give_up(key, entry, kMemoryIsShort);
    } else if (now < entry.due) {
      continue;
    } else if (!entry.runs) {
      steps.push_back({key, Act::forget, ""});
      entries_.erase(std::prev(at));
    } else if (entry.state != State::none) {
      give_up(key, entry, "it was not ready in time");
    } else if (std::string why = why_none(entry, short_of_memory); !why.empty()) {
      give_up(key, entry, std::move(why));
    } else {
      entry.state = State::prepares;
      entry.due = now + kStandbyBound;
      steps.push_back({key, Act::begin, ""});
    }
  }
  if (now >= memory_at_) memory_at_ = kNever;
  if (memory_at_ == kNever && any()) memory_at_ = now + kMemoryPause;
  return steps;
}

Instant StandbyPlan::deadline() const {
  Instant due = memory_at_;
  for (const auto& [key, entry] : entries_) due = std::min(due, entry.due);
  return due;
}

}  // namespace dtrain::task
