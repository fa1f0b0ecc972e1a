#include "common/node/images.h"

#include <algorithm>
#include <charconv>

#include "common/base/duration_text.h"
#include "common/job/container_engine.h"
#include "common/node/words.h"

namespace dtrain::node {
namespace {

// The last line that is not empty: programs name the cause last.
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::size_t begin = text.rfind('\n');
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

std::string how_it_ended(const job::Exit& exit) {
  if (!exit.cause.empty()) return exit.cause;
  const std::string said = last_line(exit.stderr_tail);
  if (!said.empty()) return said;
  return exit.signal != 0 ? "it was ended by signal " + std::to_string(exit.signal) : "it ended with " + std::to_string(exit.code);
}

// "41 s", "20 min".
std::string about(Duration duration) {
  return duration < 2min ? duration_text(duration / 1s * 1s) : std::to_string(duration / 1min) + " min";
}

}  // namespace

void Images::begin(const StagedTask& task) {
  const Stage& stage = task.stage;
  if (stage.image.empty()) return pass(stage.id);
  const auto it = all_.try_emplace(Key{stage.user.name.empty() ? std::to_string(stage.user.uid) : stage.user.name, stage.image}).first;
  Wanted& wanted = it->second;
  wanted.user = stage.user;
  wanted.waiting.insert(stage.id);
  if (wanted.does == Does::nothing) return look(it);
  if (!wanted.said.empty()) wait(stage.id, wanted.said);
}

// A pull that nobody waits for any more is ended.
void Images::give_up(const AssignmentId& id) {
  for (auto next = all_.begin(); next != all_.end();) {
    const auto it = next++;
    if (it->second.waiting.erase(id) == 0 || !it->second.waiting.empty()) continue;
    it->second.given_up = it->second.token != 0;
    if (it->second.given_up) c_.emit(EndHooks{0, it->second.token});
    else all_.erase(it);
  }
}

std::size_t Images::pulling() const {
  return static_cast<std::size_t>(std::ranges::count_if(all_, [](const auto& entry) { return entry.second.does == Does::pulls; }));
}

void Images::run(All::iterator it, std::vector<std::string> command, Duration limit, bool leaves) {
  it->second.token = c_.tickets.give(this);
  RunHook hook{it->second.token, std::move(command), {}, it->second.user, limit};
  hook.of_images = c_.options.keep_free;
  hook.leaves = leaves;
  c_.emit(std::move(hook));
}

void Images::look(All::iterator it) {
  const job::ContainerEngine* engine = job::find_engine(c_.facts.images);
  it->second.does = Does::looks;
  run(it, engine->look(c_.facts.image_program, it->first.second), kImageLookTime, true);
}

void Images::pull(All::iterator it) {
  const std::string& image = it->first.second;
  if (pulling() >= kImagePulls) {
    it->second.does = Does::waits;
    return say(it->second, "waits until other images are pulled, then pulls image " + image);
  }
  Wanted& wanted = it->second;
  wanted.does = Does::pulls;
  wanted.began = wanted.grew = wanted.word = c_.now.boot;
  wanted.fetched = 0;
  say(wanted, "pulls image " + image);
  run(it, job::find_engine(c_.facts.images)->pull(c_.facts.image_program, image), kImagePullTime, false);
}

Images::All::iterator Images::of_token(std::uint64_t token) {
  return std::ranges::find_if(all_, [&](const auto& entry) { return entry.second.token != 0 && entry.second.token == token; });
}

// The line begins with the KiB that have been fetched (ContainerEngine::pull). A layer is unpacked when it is there, and for as long
// nothing may be fetched: that is no sign of a pull that hangs, and both are named.
void Images::hook_told(const HookProgress& e) {
  const auto it = of_token(e.token);
  if (it == all_.end() || it->second.does != Does::pulls) return;
  Wanted& wanted = it->second;
  std::uint64_t kib = 0;
  if (std::from_chars(e.line.data(), e.line.data() + e.line.size(), kib).ec != std::errc{} || kib > UINT64_MAX >> 10) return;
  if (kib << 10 > wanted.fetched) wanted.grew = c_.now.boot;
  wanted.fetched = std::max(wanted.fetched, kib << 10);
  if (c_.now.boot - wanted.word < kImageWordEvery) return;
  wanted.word = c_.now.boot;
  std::string text = wanted.fetched == 0 ? "nothing" : bytes_text(wanted.fetched);
  text += " fetched in " + about(c_.now.boot - wanted.began);
  if (const Duration still = c_.now.boot - wanted.grew; still >= kImageStandsStill)
    text += wanted.fetched == 0 ? ": its registry is silent"
                                : ", the last of it " + about(still) + " ago: it is being unpacked, or its registry is silent";
  say(wanted, "pulls image " + it->first.second + ": " + text);
}

void Images::hook_ended(const HookEnded& e) {
  const auto it = of_token(e.token);
  if (it == all_.end()) return;
  Wanted& wanted = it->second;
  const std::string& image = it->first.second;
  const job::ContainerEngine* engine = job::find_engine(c_.facts.images);
  const bool pulled = std::exchange(wanted.does, Does::nothing) == Does::pulls;
  wanted.token = 0;
  if (wanted.waiting.empty()) {
    all_.erase(it);
    return;
  }
  if (std::exchange(wanted.given_up, false)) return look(it);
  if (e.exit.success()) {
    if (pulled) c_.log.write(LogLevel::info, "image.pulled", {{"image", image}, {"user", it->first.first}});
    const std::set<AssignmentId> waiting = std::move(wanted.waiting);
    all_.erase(it);
    for (const AssignmentId& id : waiting) {
      wait(id, "");
      pass(id);
    }
    return;
  }
  const std::string cause =
      e.timed_out ? "that did not end within " + duration_text(pulled ? kImagePullTime : kImageLookTime) : how_it_ended(e.exit);
  const std::string on = " on host " + c_.facts.name;
  if (pulled) {
    const job::PullFault& fault = job::fault_of(*engine, e.exit.stderr_tail);
    const bool ended_by_host = !e.exit.cause.empty();  // its disk is full, for example
    return refuse_all(it, fault.then == job::PullFault::Then::never ? ErrorCode::not_found : ErrorCode::unavailable,
                      "image " + image + " cannot be pulled" + on + ": " + cause, std::string(fault.next),
                      ended_by_host || fault.then == job::PullFault::Then::elsewhere);
  }
  if (e.timed_out || e.exit.code != engine->absent)
    return refuse_all(it, ErrorCode::unavailable,
                      std::string(engine->name) + " does not work for user " + it->first.first + on + ": " + cause,
                      "docs/images.md says what it needs", true);
  if (engine->only_here(image))
    return refuse_all(it, ErrorCode::not_found, "image " + image + " is not there" + on + ", and no registry has it",
                      "make it there as that user with " + std::string(engine->name) + " (docs/images.md), or correct its name", false);
  pull(it);
}

// What the wait for other pulls was for.
void Images::drive() {
  for (auto it = all_.begin(); it != all_.end(); ++it)
    if (it->second.does == Does::waits && pulling() < kImagePulls) pull(it);
}

void Images::refuse_all(All::iterator it, ErrorCode code, const std::string& cause, const std::string& next, bool host_refuses) {
  c_.log.write(LogLevel::warn, "image.failed", {{"image", it->first.second}, {"user", it->first.first}, {"reason", cause}});
  const std::set<AssignmentId> waiting = std::move(it->second.waiting);
  all_.erase(it);
  for (const AssignmentId& id : waiting)
    refuse(id, Error{code, "could not stage " + id.task.text() + ": " + cause, next}, host_refuses ? cause : "");
}

void Images::say(Wanted& wanted, const std::string& reason) {
  if (std::exchange(wanted.said, reason) == reason) return;
  for (const AssignmentId& id : wanted.waiting) wait(id, reason);
}

}  // namespace dtrain::node
