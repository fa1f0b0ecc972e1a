// Fetches the image that a task is to run in, as the task's user and with the host's container engine, before the task may begin. An image
// that is there already needs no network.
//
//   a task is to be staged -> is its image here -> yes: the staging goes on
//                                               -> no: pull -> the staging goes on, or the task cannot begin here
//                                               -> the engine does not work for this user: the host refuses the job
//
// Tasks of one user that want the same image wait for the same pull, and say how much of it has been fetched. Pure: the agent runs the
// engine's program (RunHook), and hands on the lines in which that counts (HookProgress).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/node/staging.h"

namespace dtrain::node {

inline constexpr Duration kImageLookTime = 1min;  // for the question whether an image is here
inline constexpr Duration kImagePullTime = 2h;    // for one pull; then it is ended, and the tasks that waited for it fail
inline constexpr std::size_t kImagePulls = 2;     // at a time; further images wait
// How far a pull is: each word of it is a report of this host to the ledger.
inline constexpr Duration kImageWordEvery = 10s;
inline constexpr Duration kImageStandsStill = 1min;  // without a new byte; then that is said

class Images final : public StagingStep {
 public:
  Images(Context& context, Staging& staging) : StagingStep(context, staging, "image") {}

  void begin(const StagedTask& task) override;  // passes once the image is here
  void give_up(const AssignmentId& id) override;
  void hook_ended(const HookEnded& e) override;
  void hook_told(const HookProgress& e) override;
  void drive() override;
  Instant deadline() const override { return kNever; }

 private:
  enum class Does : unsigned char { nothing, looks, waits, pulls };
  struct Wanted {
    task::User user;
    std::set<AssignmentId> waiting;
    Does does = Does::nothing;
    std::uint64_t token = 0;  // of the program that runs
    bool given_up = false;    // it is being ended, since nobody waited for it any more
    std::string said;         // what the tasks wait for, as last reported
    // Of the pull that runs:
    Instant began{}, grew{}, word{};  // when it began, when the last byte was seen to come, when `said` last was how far it is
    std::uint64_t fetched = 0;        // bytes
  };
  using Key = std::pair<std::string, std::string>;  // user, image
  using All = std::map<Key, Wanted>;

  void look(All::iterator it);
  void pull(All::iterator it);
  All::iterator of_token(std::uint64_t token);
  void run(All::iterator it, std::vector<std::string> command, Duration limit, bool leaves);
  void refuse_all(All::iterator it, ErrorCode code, const std::string& cause, const std::string& next, bool host_refuses);
  void say(Wanted& wanted, const std::string& reason);
  std::size_t pulling() const;

  All all_;
};

}  // namespace dtrain::node
