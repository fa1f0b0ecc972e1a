#include "common/cluster/capacity.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "common/base/check.h"

namespace dtrain::cluster {
namespace {

// FNV-1a (Fowler, Noll, Vo): enough to notice what an operator changes; it need not resist attackers.
class Fingerprint {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0xff);
  }
  void add(std::uint64_t number) { value_ = (value_ ^ number) * kPrime; }
  std::uint64_t value() const { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 1099511628211ull;
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * kPrime; }
  std::uint64_t value_ = 14695981039346656037ull;
};

// The finaliser of MurmurHash3 (Appleby, 2011). Without it, two hosts that change alike may change their values by
// the same amount up and down, so that the sum stays the same: jobs that waited for two hosts which were undrained at
// the same moment were not looked at again.
std::uint64_t mixed(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  return value;
}

std::uint64_t shape_of(const std::vector<HostCapacity>& hosts, PortRange ports) {
  std::uint64_t all = std::uint64_t{ports.first} << 16 | ports.last;
  for (const HostCapacity& h : hosts) {
    Fingerprint print;
    print.add(h.id);
    print.add(h.cpu_millis);
    print.add(h.memory_bytes);
    print.add((h.schedulable ? 1u : 0u) | (h.runs_images ? 2u : 0u));
    for (const auto& gpu : h.gpus) {
      print.add(gpu.index);
      print.add(gpu.model);
    }
    for (const auto& [key, value] : h.labels) {
      print.add(key);
      print.add(value);
    }
    all += mixed(print.value());
  }
  return all;
}

std::uint64_t key_of(std::uint32_t pool, std::uint16_t port) { return std::uint64_t{pool} << 16 | port; }

std::int64_t left(std::uint64_t has, std::uint64_t used) { return static_cast<std::int64_t>(has) - static_cast<std::int64_t>(used); }

std::uint64_t mask_of(const HostCapacity& host, const std::vector<std::uint32_t>& indices) {
  std::uint64_t mask = 0;
  for (const std::uint32_t index : indices)
    for (std::size_t i = 0; i < std::min(host.gpus.size(), kGpusPerHost); ++i)
      if (host.gpus[i].index == index) mask |= std::uint64_t{1} << i;
  return mask;
}

}  // namespace

std::shared_ptr<const Capacity::Table> Capacity::make_table(std::vector<HostCapacity> hosts, PortRange ports) {
  auto table = std::make_shared<Table>();
  table->ports = ports;
  table->shape = shape_of(hosts, ports);
  table->by_id.resize(hosts.size());
  std::iota(table->by_id.begin(), table->by_id.end(), HostNumber{0});
  std::sort(table->by_id.begin(), table->by_id.end(), [&](HostNumber a, HostNumber b) { return hosts[a].id < hosts[b].id; });
  std::map<std::string_view, std::uint32_t> pools, models;
  table->first_class.push_back(0);
  for (const HostCapacity& host : hosts) {
    table->pool.push_back(pools.try_emplace(host.task_address, static_cast<std::uint32_t>(pools.size())).first->second);
    std::map<std::uint32_t, std::uint64_t> classes;
    for (std::size_t i = 0; i < std::min(host.gpus.size(), kGpusPerHost); ++i) {
      const auto model = models.try_emplace(host.gpus[i].model, static_cast<std::uint32_t>(models.size()));
      if (model.second) table->models.push_back(host.gpus[i].model);
      classes[model.first->second] |= std::uint64_t{1} << i;
    }
    for (const auto& [model, gpus] : classes) table->classes.push_back({model, gpus});
    table->first_class.push_back(static_cast<std::uint32_t>(table->classes.size()));
  }
  table->hosts = std::move(hosts);
  return table;
}

Capacity::Capacity(std::vector<HostCapacity> hosts, PortRange ports) : table_(make_table(std::move(hosts), ports)) {
  const auto pools = table_->pool.empty() ? 0 : *std::max_element(table_->pool.begin(), table_->pool.end()) + 1;
  free_ports_.assign(pools, ports.last < ports.first ? 0 : ports.last - ports.first + 1);
  rooms_.reserve(table_->hosts.size());
  for (HostNumber h = 0; h < table_->hosts.size(); ++h) {
    const HostCapacity& host = table_->hosts[h];
    Room room{left(host.cpu_millis, host.cpu_used), left(host.memory_bytes, host.memory_used), 0, host.tasks};
    for (std::size_t i = 0; i < std::min(host.gpus.size(), kGpusPerHost); ++i)
      if (host.gpus[i].free) room.gpus |= std::uint64_t{1} << i;
    rooms_.push_back(room);
    for (const std::uint16_t port : host.ports_in_use)
      if (in_range(port)) ports_.push_back(key_of(pool(h), port));
  }
  std::sort(ports_.begin(), ports_.end());
  ports_.erase(std::unique(ports_.begin(), ports_.end()), ports_.end());
  for (const std::uint64_t key : ports_) --free_ports_[key >> 16];
}

std::optional<HostNumber> Capacity::find(const NodeId& id) const {
  const auto& by_id = table_->by_id;
  const auto it = std::lower_bound(by_id.begin(), by_id.end(), id, [&](HostNumber h, const NodeId& wanted) { return host(h).id < wanted; });
  if (it == by_id.end() || host(*it).id != id) return std::nullopt;
  return *it;
}

RoomInAll Capacity::in_all() const {
  RoomInAll all;
  for (HostNumber h = 0; h < size(); ++h) {
    if (!takes_tasks(h)) continue;
    const auto cpu = static_cast<std::uint64_t>(std::max<std::int64_t>(rooms_[h].cpu_millis, 0));
    const auto memory = static_cast<std::uint64_t>(std::max<std::int64_t>(rooms_[h].memory_bytes, 0));
    const auto gpus = static_cast<std::uint64_t>(std::popcount(rooms_[h].gpus));
    all.cpu_millis += cpu;
    all.memory_bytes += memory;
    all.gpus += gpus;
    all.most_cpu_millis = std::max(all.most_cpu_millis, cpu);
    all.most_memory_bytes = std::max(all.most_memory_bytes, memory);
    all.most_gpus = std::max(all.most_gpus, gpus);
  }
  return all;
}

void Capacity::hold(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements) { change({{&spec, &placements}}, true); }

void Capacity::release(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements) { change({{&spec, &placements}}, false); }

void Capacity::change(const std::vector<Holding>& jobs, bool held) {
  std::vector<std::uint64_t> ports;
  for (const Holding& job : jobs)
    for (const TaskPlacement& place : *job.placements) {
      const auto h = find(place.node);
      const auto role = job.spec->roles.find(place.task.role);
      if (!h || role == job.spec->roles.end()) continue;
      take(*h, role->second.resources, mask_of(host(*h), place.gpus), held ? 1 : -1);
      if (in_range(place.address.port)) ports.push_back(key_of(pool(*h), place.address.port));
    }
  if (ports.empty()) return;
  std::sort(ports.begin(), ports.end());
  ports.erase(std::unique(ports.begin(), ports.end()), ports.end());
  std::vector<std::uint64_t> changed;
  changed.reserve(ports_.size() + ports.size());
  if (held) std::set_union(ports_.begin(), ports_.end(), ports.begin(), ports.end(), std::back_inserter(changed));
  else std::set_difference(ports_.begin(), ports_.end(), ports.begin(), ports.end(), std::back_inserter(changed));
  for (const std::uint64_t key : ports)
    if (std::binary_search(ports_.begin(), ports_.end(), key) != held) free_ports_[key >> 16] += held ? -1 : 1;
  ports_ = std::move(changed);
}

void Capacity::take(HostNumber h, const job::Resources& each, std::uint64_t gpus, std::int64_t tasks) {
  Room& room = rooms_[h];
  room.cpu_millis -= static_cast<std::int64_t>(each.cpu_millis) * tasks;
  room.memory_bytes -= static_cast<std::int64_t>(each.memory_bytes) * tasks;
  room.gpus = tasks > 0 ? room.gpus & ~gpus : room.gpus | gpus;
  room.tasks = static_cast<std::uint32_t>(std::max<std::int64_t>(0, room.tasks + tasks));
}

void Capacity::meet(const Capacity& other) {
  CHECK(table_ == other.table_);
  for (HostNumber h = 0; h < size(); ++h) {
    Room& mine = rooms_[h];
    const Room& theirs = other.rooms_[h];
    mine.cpu_millis = std::min(mine.cpu_millis, theirs.cpu_millis);
    mine.memory_bytes = std::min(mine.memory_bytes, theirs.memory_bytes);
    mine.gpus &= theirs.gpus;
    mine.tasks = std::max(mine.tasks, theirs.tasks);
  }
  std::vector<std::uint64_t> both;
  both.reserve(ports_.size() + other.ports_.size());
  std::set_union(ports_.begin(), ports_.end(), other.ports_.begin(), other.ports_.end(), std::back_inserter(both));
  ports_ = std::move(both);
  std::fill(free_ports_.begin(), free_ports_.end(), std::int64_t{table_->ports.last} - table_->ports.first + 1);
  for (const std::uint64_t key : ports_) --free_ports_[key >> 16];
}

std::optional<std::uint16_t> Capacity::next_free_port(HostNumber h, std::optional<std::uint16_t> after) const {
  std::uint32_t port = after ? std::uint32_t{*after} + 1 : table_->ports.first;
  auto used = std::lower_bound(ports_.begin(), ports_.end(), std::uint64_t{pool(h)} << 16 | port);
  for (; port <= table_->ports.last; ++port, ++used)
    if (used == ports_.end() || *used != (std::uint64_t{pool(h)} << 16 | port)) return static_cast<std::uint16_t>(port);
  return std::nullopt;
}

void Capacity::take_port(HostNumber h, std::uint16_t port) {
  const std::uint64_t key = key_of(pool(h), port);
  const auto at = std::lower_bound(ports_.begin(), ports_.end(), key);
  if (!in_range(port) || (at != ports_.end() && *at == key)) return;
  ports_.insert(at, key);
  --free_ports_[pool(h)];
}

std::uint64_t Capacity::gpus_of(HostNumber h, std::string_view model) const {
  std::uint64_t mask = 0;
  for (std::uint32_t i = table_->first_class[h]; i < table_->first_class[h + 1]; ++i) {
    const GpuClass& c = table_->classes[i];
    if (model.empty() || table_->models[c.model].find(model) != std::string::npos) mask |= c.gpus;
  }
  return mask;
}

std::uint64_t Capacity::all_gpus(HostNumber h) const { return gpus_of(h, ""); }

void hold_used(const Ledger& ledger, Capacity& capacity) {
  std::vector<std::vector<TaskPlacement>> held;
  std::vector<Holding> holdings;
  held.reserve(ledger.state().jobs.size());  // holdings point into it, so it must not move
  for (const auto& [id, job] : ledger.state().jobs) {
    std::vector<TaskPlacement> places;
    for (const auto& [task, record] : job.tasks)
      if (!record.ended) places.push_back(record.place);
    if (places.empty()) continue;
    held.push_back(std::move(places));
    holdings.push_back({&job.spec, &held.back()});
  }
  capacity.hold(holdings);
}

void add_resting_ports(const Ledger& ledger, std::vector<HostCapacity>& hosts) {
  const LedgerState& state = ledger.state();
  for (HostCapacity& host : hosts) {
    const auto resting = state.ports.find(host.id);
    if (resting == state.ports.end()) continue;
    for (const auto& [port, used] : resting->second)
      if (state.elapsed - used <= kPortRest) host.ports_in_use.insert(port);
  }
}

}  // namespace dtrain::cluster
