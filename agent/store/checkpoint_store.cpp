#include "agent/store/checkpoint_store.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/account/as_user.h"
#include "agent/store/checkpoint_changes.h"
#include "agent/store/checkpoint_reader.h"
#include "agent/store/checkpoint_verify_queue.h"
#include "agent/store/checkpoint_watch.h"
#include "common/wire/codec.h"

namespace dtrain::store {
namespace {

using transfer::Candidate;
using transfer::CheckpointInfo;

constexpr int kPatience = 3;  // scans that may disagree before a checkpoint that still changes is listed as incomplete

// The result of one scan on the worker.
struct LookResult {
  ArmedWatches armed;
  Result<std::vector<Candidate>> found;
  std::string unrecognised = {};  // if nothing was found
};

// `leftovers`: of which agent; null: they were removed before.
LookResult look_as(const CheckpointWatch::Shared& inotify, const job::CheckpointSpec& spec, const task::User& user,
                   const CopyOwner* leftovers) {
  const auto rights = account::AsUser::enter(user);
  if (!rights) return {{{}, false, rights.error().message}, fail(rights.error())};
  if (leftovers != nullptr) {
    remove_leftovers(spec.dir, *leftovers);
    // It may be the prefix of a bundle: its copies were written beside it.
    if (!open_directory(spec.dir)) remove_leftovers(split_path(spec.dir).first, *leftovers);
  }
  // Watched before it is read, so that a change in between is seen twice rather than never.
  auto armed = CheckpointWatch::arm(inotify, spec.dir);
  LookResult result{std::move(armed), look(spec)};
  if (result.found && result.found->empty()) result.unrecognised = unrecognised(spec);
  return result;
}

struct Watched {
  job::CheckpointSpec spec;
  task::User user;
  std::uint64_t serial = 0;  // distinguishes this watch from an earlier one of the same job
  bool looking = false;
  bool first = true;    // no scan of it has succeeded yet
  bool missed = false;  // a change was seen that may have concerned this job
  std::optional<Instant> first_change, last_change;
  Instant next_look{};  // settle or poll
  Duration settle{};
  int disagreements = 0;
  std::map<std::string, std::uint64_t> stamps;  // path -> stamp, in the previous scan
  std::string reported;                         // encoded; what was last sent
  std::optional<LookResult> result;             // waits for dispatch()
  bool warned = false;
  std::optional<Instant> foreign_since;  // since when scans found no checkpoint, but files in no known format
  bool foreign_said = false;
};

std::string fingerprint(const Result<std::vector<CheckpointInfo>>& found) {
  return found ? "+" + wire::encode(*found) : "-" + found.error().text();
}

}  // namespace

class CheckpointStore::Impl : public std::enable_shared_from_this<CheckpointStore::Impl> {
 public:
  Impl(Post post, Log& log, CheckpointStoreOptions options)
      : post_(std::move(post)),
        log_(log),
        options_(options),
        queue_(std::make_shared<VerificationQueue>(post_, options.bytes_per_second, kPendingVerifications)) {}

  void watch(const node::WatchCheckpoints& effect) {
    if (!effect.on) {
      watched_.erase(effect.job);
      watch_.drop(effect.job);
      queue_->end_background(effect.job);
      return;
    }
    Watched watched;
    watched.spec = effect.spec;
    watched.user = effect.user;
    watched.serial = ++last_serial_;
    watched.settle = options_.settle;
    watched.reported = fingerprint(std::vector<CheckpointInfo>{});  // an empty directory is no news
    watched_.insert_or_assign(effect.job, std::move(watched));
  }

  void scan(const node::ScanCheckpoints& effect) {
    run<node::CheckpointsScanned>(
        [effect]() -> node::CheckpointsScanned {
          const auto rights = account::AsUser::enter(effect.user);
          if (!rights) return {effect.job, effect.token, fail(rights.error())};
          auto found = store::scan(effect.spec, effect.below);
          std::string left = found && found->empty() && effect.below.empty() ? unrecognised(effect.spec) : "";
          return {effect.job, effect.token, std::move(found), std::move(left)};
        },
        [this](node::CheckpointsScanned answer) { events_.push_back(std::move(answer)); });
  }

  void verify(const node::VerifyCheckpoint& effect) { queue_->add(effect); }
  void end(const node::EndVerification& effect) { queue_->end(effect); }

  void quarantine(const node::QuarantineCheckpoint& effect) {
    using Answer = Result<std::string>;
    run<Answer>(
        [effect, directory = effect.dir]() -> Answer {
          const auto rights = account::AsUser::enter(effect.user);
          return rights ? store::quarantine(effect.info, directory) : fail(rights.error());
        },
        [this, job = effect.job, token = effect.token, path = effect.info.path](Answer moved_to) {
          events_.push_back(node::CheckpointQuarantined{job, token, path, std::move(moved_to)});
        });
  }

  void remove(const node::DeleteCheckpoint& effect) {
    run<Status>(
        [effect, directory = effect.dir]() -> Status {
          const auto rights = account::AsUser::enter(effect.user);
          return rights ? store::remove(effect.info, directory) : fail(rights.error());
        },
        [this, job = effect.job](const Status& result) {
          if (result || result.error().code == ErrorCode::not_found) return;
          log_.write(LogLevel::warn, "checkpoint.not-removed", {{"job", std::to_string(job)}, {"error", result.error().text()}});
        });
  }

  int fd() const { return watch_.fd(); }

  Instant deadline() const {
    if (!events_.empty()) return Instant{};
    Instant earliest = queue_->deadline();
    for (const auto& [job, watched] : watched_) earliest = std::min(earliest, look_at(watched));
    return earliest;
  }

  void dispatch(Instant now, const EventSink& sink) {
    watch_.read([&](JobId job) { note_change(job, now); },
                [&] {
                  for (auto& [job, watched] : watched_) watched.missed = watched.missed || watched.looking;
                });
    for (auto& [job, watched] : watched_) {
      if (watched.result) take_result(job, watched, now);
      if (now >= look_at(watched)) start_look(job, watched);
    }
    const auto events = std::exchange(events_, {});
    for (const auto& event : events) sink(event);
    queue_->dispatch(now, sink);
  }

 private:
  // Runs `work` on the worker and passes its result to `then` on the loop thread, if this object still lives.
  template <class Answer, class Work, class Then>
  void run(Work work, Then then) {
    auto answer = std::make_shared<std::optional<Answer>>();
    post_([answer, work = std::move(work)] { *answer = work(); },
          [answer, alive = weak_from_this(), then = std::move(then)]() mutable {
            if (alive.lock() && *answer) then(std::move(**answer));
          });
  }

  Instant look_at(const Watched& watched) const {
    if (watched.result) return Instant{};
    if (watched.looking) return kNever;
    Instant at = watched.next_look;
    if (watched.first_change) at = std::min({at, *watched.last_change + options_.quiet, *watched.first_change + options_.longest_burst});
    return at;
  }

  void note_change(JobId job, Instant now) {
    const auto found = watched_.find(job);
    if (found == watched_.end()) return;
    Watched& watched = found->second;
    if (!watched.first_change) watched.first_change = now;
    watched.last_change = now;
    watched.settle = options_.settle;  // it grows only over changes that are not reported
  }

  void start_look(JobId job, Watched& watched) {
    watched.looking = true;
    watched.first_change.reset();
    watched.last_change.reset();
    watched.next_look = kNever;
    run<LookResult>([inotify = watch_.share(), spec = watched.spec, user = watched.user, first = watched.first,
                     copies = options_.copies] { return look_as(inotify, spec, user, first ? &copies : nullptr); },
                    [this, job, serial = watched.serial](LookResult result) {
                      const auto found = watched_.find(job);
                      if (found != watched_.end() && found->second.serial == serial) {
                        found->second.result = std::move(result);
                        return;
                      }
                      // Nobody wants these any more; setting and dropping them removes those that no other job has.
                      if (found != watched_.end()) return;  // the job's new watch adds its own and replaces the rest
                      watch_.set(job, result.armed);
                      watch_.drop(job);
                    });
  }

  void take_result(JobId job, Watched& watched, Instant now) {
    LookResult result = std::move(*watched.result);
    watched.result.reset();
    watched.looking = false;
    watch_.set(job, result.armed);
    if (result.found) watched.first = false;
    if (std::exchange(watched.missed, false)) watched.first_change = watched.last_change = now;
    if (!result.armed.complete) {
      watched.next_look = now + options_.poll;
      if (!std::exchange(watched.warned, true))
        log_.write(LogLevel::warn, "checkpoint.unwatched",
                   {{"job", std::to_string(job)}, {"dir", watched.spec.dir}, {"cause", result.armed.cause}});
    }
    if (!result.found) {
      watched.next_look = now + options_.poll;
      report(job, watched, fail(result.found.error()));
      return;
    }
    consider(job, watched, *result.found, now);
    note_unrecognised(job, watched, std::move(result.unrecognised), now);
  }

  // Reported once, and not at once: the checkpoint to which such a file belongs may still be being written.
  void note_unrecognised(JobId job, Watched& watched, std::string what, Instant now) {
    if (what.empty() || watched.foreign_said) return watched.foreign_since.reset();
    if (!watched.foreign_since) watched.foreign_since = now;
    const Instant due = *watched.foreign_since + options_.foreign_after;
    if (now < due) {
      watched.next_look = std::min(watched.next_look, due);
      return;
    }
    watched.foreign_said = true;
    events_.push_back(node::CheckpointsScanned{job, 0, std::vector<CheckpointInfo>{}, std::move(what)});
  }

  // Reports what agrees with the previous scan; scans again while anything does not.
  void consider(JobId job, Watched& watched, const std::vector<Candidate>& found, Instant now) {
    std::map<std::string, std::uint64_t> stamps;
    std::vector<CheckpointInfo> list;
    bool agreed = true;
    for (const auto& candidate : found) {
      stamps[candidate.info.path] = candidate.stamp;
      list.push_back(candidate.info);
      const auto before = watched.stamps.find(candidate.info.path);
      if (before != watched.stamps.end() && before->second == candidate.stamp) continue;
      agreed = false;
      list.back().complete = false;
      if (list.back().defect.empty()) list.back().defect = "it is still changing";
    }
    watched.stamps = std::move(stamps);
    if (agreed) {
      watched.disagreements = 0;
      watched.settle = options_.settle;
    } else {
      ++watched.disagreements;
      watched.next_look = std::min(watched.next_look, now + watched.settle);
      watched.settle = std::min(2 * watched.settle, options_.longest_settle);
    }
    if (agreed || watched.disagreements >= kPatience) report(job, watched, std::move(list));
  }

  void report(JobId job, Watched& watched, Result<std::vector<CheckpointInfo>> found) {
    std::string now_known = fingerprint(found);
    if (now_known == watched.reported) return;
    watched.reported = std::move(now_known);
    events_.push_back(node::CheckpointsScanned{job, 0, std::move(found)});
  }

  const Post post_;
  Log& log_;
  const CheckpointStoreOptions options_;
  CheckpointWatch watch_;
  std::shared_ptr<VerificationQueue> queue_;
  std::map<JobId, Watched> watched_;
  std::uint64_t last_serial_ = 0;
  std::vector<node::Event> events_;
};

CheckpointStore::CheckpointStore(Post post, Log& log, CheckpointStoreOptions options)
    : impl_(std::make_shared<Impl>(std::move(post), log, options)) {}
CheckpointStore::~CheckpointStore() = default;
void CheckpointStore::watch(const node::WatchCheckpoints& effect) { impl_->watch(effect); }
void CheckpointStore::scan(const node::ScanCheckpoints& effect) { impl_->scan(effect); }
void CheckpointStore::verify(const node::VerifyCheckpoint& effect) { impl_->verify(effect); }
void CheckpointStore::end(const node::EndVerification& effect) { impl_->end(effect); }
void CheckpointStore::quarantine(const node::QuarantineCheckpoint& effect) { impl_->quarantine(effect); }
void CheckpointStore::remove(const node::DeleteCheckpoint& effect) { impl_->remove(effect); }
int CheckpointStore::fd() const { return impl_->fd(); }
Instant CheckpointStore::deadline() const { return impl_->deadline(); }
void CheckpointStore::dispatch(Instant now, const EventSink& sink) { impl_->dispatch(now, sink); }

}  // namespace dtrain::store
