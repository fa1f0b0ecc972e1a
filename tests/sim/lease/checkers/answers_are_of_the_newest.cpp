// No host passes on the answer of an older coordinator than it follows, and no shim uses an answer of an older
// coordinator than that of its last one: the newer one may have given the task away.

#include <algorithm>
#include <map>

#include "tests/sim/lease/checkers/checkers.h"

namespace dtrain::sim::lease {
namespace {

class AnswersAreOfTheNewest final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "answers_are_of_the_newest"; }

  void passed_on(const Instance& instance, std::uint64_t epoch, std::uint64_t follows) override {
    if (epoch < follows)
      violation(sim::lease::name(instance) + " is given an answer of epoch " + std::to_string(epoch) + ", and its host follows " +
                std::to_string(follows));
  }
  void answer_taken(const Instance& instance, std::uint64_t epoch) override {
    std::uint64_t& highest = shims_[instance.number];
    if (epoch < highest)
      violation(sim::lease::name(instance) + " uses an answer of epoch " + std::to_string(epoch) + " after " + std::to_string(highest));
    highest = std::max(highest, epoch);
  }

 private:
  std::map<std::uint32_t, std::uint64_t> shims_;
};

}  // namespace

std::unique_ptr<Checker> answers_are_of_the_newest(WorldView& world) { return std::make_unique<AnswersAreOfTheNewest>(world); }

}  // namespace dtrain::sim::lease
