#include "common/cluster/placement_reasons.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <vector>

#include "common/job/container_engine.h"
#include "common/wire/raft.h"

namespace dtrain::cluster {
namespace {

constexpr std::uint32_t kUnfitNamed = 2;  // hosts whose reason is given; further ones are only counted

std::string hosts(std::uint32_t n) { return std::to_string(n) + (n == 1 ? " host" : " hosts"); }

std::string gpus(std::uint32_t n, const std::string& model) {
  return std::to_string(n) + (model.empty() ? "" : " " + model) + (n == 1 ? " GPU" : " GPUs");
}

std::string mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::uint64_t at_least_none(std::int64_t free) { return free < 0 ? 0 : static_cast<std::uint64_t>(free); }

class Words {
 public:
  Words(const Fit& fit, std::size_t f, const Attempt& attempt)
      : fit_(fit), f_(f), attempt_(attempt), now_(attempt.now()), role_(*fit.demand().role) {
    for (HostNumber h = 0; h < now_.size(); ++h) count(h);
  }

  std::string text() const {
    if (now_.size() == 0) return task() + " needs a host, none is known";
    if (eligible_ == 0) return task() + " " + no_host();
    if (with_room_ == 0) return task() + " " + short_of(best()) + left_out();
    return tasks() + " " + short_in_all() + left_out();
  }

 private:
  void count(HostNumber h) {
    switch (fit_.exclusion(h)) {
      case Exclusion::cordoned: return count_cordoned(now_.host(h));
      case Exclusion::refused: return count_refused(now_.host(h));
      case Exclusion::selector: ++unselected_; return;
      case Exclusion::has_gpus: ++with_gpus_; return;
      case Exclusion::no_images: ++without_images_; return;
      case Exclusion::no_copy: ++without_copy_; return;
      case Exclusion::none: break;
    }
    ++eligible_;
    const std::uint32_t slots = attempt_.slots(f_, h);
    if (slots == 0) return;
    ++with_room_;
    room_ += slots;
    if (slots > most_) {
      most_ = slots;
      most_on_ = h;
    }
  }

  void count_cordoned(const HostCapacity& host) {
    if (host.unfit.empty()) {
      ++cordoned_;
      return;
    }
    if (++unfit_ <= kUnfitNamed) unfit_text_ += (unfit_ == 1 ? "" : "; ") + host.name + ": " + host.unfit;
    if (unfit_ == kUnfitNamed + 1) unfit_text_ += "; ...";
  }

  void count_refused(const HostCapacity& host) {
    const Refusal& refusal = fit_.demand().refused->at(host.id);
    const char* how = refusal.avoided ? " is avoided, since " : " refused it: ";
    if (++refused_ <= kUnfitNamed) refused_text_ += (refused_ == 1 ? "" : "; ") + host.name + how + refusal.reason;
    if (refused_ == kUnfitNamed + 1) refused_text_ += "; ...";
  }

  std::string task() const { return TaskId{fit_.demand().role_name, fit_.demand().first_index}.text(); }
  std::string tasks() const { return std::to_string(fit_.demand().count()) + " tasks of " + fit_.demand().role_name; }

  std::string labels() const {
    std::string text;
    for (const auto& [key, value] : role_.node_selector) text += (text.empty() ? "" : ", ") + key + "=" + value;
    return text;
  }

  // Every host is excluded by a rule.
  std::string no_host() const {
    const bool one_rule = (cordoned_ > 0) + (refused_ > 0) + (unfit_ > 0) + (unselected_ > 0) + (with_gpus_ > 0) + (without_images_ > 0) +
                              (without_copy_ > 0) ==
                          1;
    if (one_rule && cordoned_ > 0) return "needs a host that takes tasks, none of " + hosts(now_.size()) + " does (cordoned)";
    if (one_rule && unfit_ > 0) return "needs a host that takes tasks, none of " + hosts(now_.size()) + " does (" + unfit_text_ + ")";
    if (one_rule && refused_ > 0)
      return "needs a host that takes this job, none of " + hosts(now_.size()) + " does now (" + refused_text_ + ")";
    if (one_rule && unselected_ > 0) return "needs a host with label " + labels() + ", none of " + hosts(now_.size()) + " has it";
    if (one_rule && without_images_ > 0)
      return "needs a host that can run image " + role_.image + ", none of " + hosts(now_.size()) + " can (none has " +
             job::engine_names() + ")";
    if (one_rule && with_gpus_ > 0) return "avoids hosts with GPUs, none of " + hosts(now_.size()) + " is without";
    return "finds no host" + left_out();
  }

  static std::string no_more_copies() {
    return ": as many hosts as can have a copy of the log (" + std::to_string(wire::kMostLearners) + ") have tasks";
  }

  // "; 2 of 9 hosts are cordoned, 3 have not label zone=a"
  std::string left_out() const {
    std::string text;
    const auto add = [&](std::uint32_t n, const std::string& one, const std::string& many) {
      if (n == 0) return;
      text += text.empty() ? "; " + std::to_string(n) + " of " + hosts(now_.size()) : ", " + std::to_string(n);
      text += " " + (n == 1 ? one : many);
    };
    add(cordoned_, "is cordoned", "are cordoned");
    add(unfit_, "is not fit (" + unfit_text_ + ")", "are not fit (" + unfit_text_ + ")");
    add(refused_, "does not take this job now (" + refused_text_ + ")", "do not take this job now (" + refused_text_ + ")");
    add(unselected_, "has not label " + labels(), "have not label " + labels());
    add(with_gpus_, "has GPUs and is avoided", "have GPUs and are avoided");
    const std::string no_images = "can run no images (without " + job::engine_names() + ")";
    add(without_images_, no_images, no_images);
    add(without_copy_, "gets none" + no_more_copies(), "get none" + no_more_copies());
    return text;
  }

  // The eligible host that is nearest to taking one task: by what is scarcest, GPUs, then cpus, then memory.
  HostNumber best() const {
    HostNumber best = 0;
    bool found = false;
    const auto rank = [&](HostNumber h) {
      const Room& room = now_.room(h);
      return std::tuple(fit_.shortage(now_, h) == Shortage::none,
                        std::min<std::uint32_t>(static_cast<std::uint32_t>(std::popcount(fit_.gpus(now_, h))), role_.resources.gpus),
                        std::min(at_least_none(room.cpu_millis), role_.resources.cpu_millis),
                        std::min(at_least_none(room.memory_bytes), role_.resources.memory_bytes));
    };
    for (HostNumber h = 0; h < now_.size(); ++h) {
      if (fit_.exclusion(h) != Exclusion::none) continue;
      if (!found || rank(h) > rank(best)) best = h;
      found = true;
    }
    return best;
  }

  std::string short_of(HostNumber h) const {
    const job::Resources& want = role_.resources;
    const Room& room = now_.room(h);
    const std::string on = " on " + now_.host(h).name;
    switch (fit_.shortage(now_, h)) {
      case Shortage::gpus:
        return "needs " + gpus(want.gpus, want.gpu_model) + " on one host, best is " + std::to_string(std::popcount(fit_.gpus(now_, h))) +
               on;
      case Shortage::cpu:
        return "needs " + std::to_string(want.cpu_millis) + "m CPU on one host, best is " + std::to_string(at_least_none(room.cpu_millis)) +
               "m" + on;
      case Shortage::memory:
        return "needs " + mib(want.memory_bytes) + " memory on one host, best is " + mib(at_least_none(room.memory_bytes)) + on;
      case Shortage::ports:
        return "needs a port, all of " + std::to_string(now_.port_range().first) + "-" + std::to_string(now_.port_range().last) + on +
               " are in use or were within two minutes";
      case Shortage::none: break;
    }
    return spaced() + ", all that have room have one already";
  }

  std::string spaced() const {
    return role_.anti_affinity == "host"
               ? "needs a host of its own for each task (antiAffinity: host)"
               : "needs a host with another " + role_.anti_affinity + " for each task (antiAffinity: " + role_.anti_affinity + ")";
  }

  std::string short_in_all() const {
    if (fit_.spaced())
      return spaced().replace(0, 5, "need") + ", there is room for " + std::to_string(attempt_.slots_in_all(f_, fit_.demand().count()));
    const job::Resources& want = role_.resources;
    std::string each;
    const auto add = [&](const std::string& what) { each += (each.empty() ? "" : ", ") + what; };
    if (want.gpus > 0) add(gpus(want.gpus, want.gpu_model));
    if (want.cpu_millis > 0) add(std::to_string(want.cpu_millis) + "m CPU");
    if (want.memory_bytes > 0) add(mib(want.memory_bytes) + " memory");
    if (each.empty()) each = "a port";
    return "need " + each + " each, there is room for " + std::to_string(std::min<std::uint64_t>(room_, fit_.demand().count())) + " (on " +
           hosts(with_room_) + ", most on " + now_.host(most_on_).name + ": " + std::to_string(most_) + ")";
  }

  const Fit& fit_;
  std::size_t f_;
  const Attempt& attempt_;
  const Capacity& now_;
  const job::RoleSpec& role_;
  std::uint32_t cordoned_ = 0, refused_ = 0;
  std::uint32_t unfit_ = 0, unselected_ = 0, with_gpus_ = 0, without_images_ = 0, without_copy_ = 0, eligible_ = 0, with_room_ = 0,
                most_ = 0;
  std::uint64_t room_ = 0;
  HostNumber most_on_ = 0;
  std::string unfit_text_, refused_text_;  // of the first kUnfitNamed each: the host, and why
};

}  // namespace

std::string why_not(const Fit& fit, std::size_t f, const Attempt& attempt) { return Words(fit, f, attempt).text(); }

}  // namespace dtrain::cluster
