// Which packets do not arrive: partitions, one-way cuts, single bad pairs. Hosts are numbered by slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace dtrain::sim::membership {

class Cuts {
 public:
  void resize(std::size_t hosts) { hosts_.resize(hosts); }
  // Partitions may overlap, so each has a bit of its own: hosts that differ in any do not hear each other.
  static constexpr unsigned kPartitions = 8;
  void part(std::uint32_t slot, unsigned partition, bool away) {
    const auto bit = static_cast<std::uint8_t>(1u << partition);
    set(hosts_[slot].group, static_cast<std::uint8_t>(away ? hosts_[slot].group | bit : hosts_[slot].group & ~bit));
  }
  void mute(std::uint32_t slot, bool on) { set(hosts_[slot].mute, on); }  // what it sends is lost
  void deaf(std::uint32_t slot, bool on) { set(hosts_[slot].deaf, on); }  // what is sent to it is lost
  void pair(std::uint32_t a, std::uint32_t b, bool on) {                  // both ways
    const Pair key = std::minmax(a, b);
    const auto at = std::lower_bound(pairs_.begin(), pairs_.end(), key);
    const bool there = at != pairs_.end() && *at == key;
    if (on && !there) pairs_.insert(at, key);
    if (!on && there) pairs_.erase(at);
  }
  void heal() {
    for (Host& host : hosts_) host = {};
    pairs_.clear();
    active_ = 0;
  }

  bool blocked(std::uint32_t from, std::uint32_t to) const {
    if (active_ > 0 && (hosts_[from].group != hosts_[to].group || hosts_[from].mute || hosts_[to].deaf)) return true;
    return !pairs_.empty() && std::binary_search(pairs_.begin(), pairs_.end(), Pair(std::minmax(from, to)));
  }
  bool same_group(std::uint32_t a, std::uint32_t b) const { return hosts_[a].group == hosts_[b].group; }

 private:
  using Pair = std::pair<std::uint32_t, std::uint32_t>;
  struct Host {
    std::uint8_t group = 0;
    bool mute = false, deaf = false;
  };
  template <class T>
  void set(T& field, T value) {
    active_ += (field == T{} && value != T{}) ? 1 : (field != T{} && value == T{}) ? -1 : 0;
    field = value;
  }
  std::vector<Host> hosts_;
  std::vector<Pair> pairs_;  // sorted
  int active_ = 0;           // fields that are set
};

}  // namespace dtrain::sim::membership
