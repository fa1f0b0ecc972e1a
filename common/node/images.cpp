#include "common/node/images.h"

#include <algorithm>

#include "common/base/duration_text.h"
#include "common/job/container_engine.h"

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
  it->second.does = Does::pulls;
  say(it->second, "pulls image " + image);
  run(it, job::find_engine(c_.facts.images)->pull(c_.facts.image_program, image), kImagePullTime, false);
}

void Images::hook_ended(const HookEnded& e) {
  const auto it = std::ranges::find_if(all_, [&](const auto& entry) { return entry.second.token != 0 && entry.second.token == e.token; });
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
    const bool final = engine->is_final(e.exit.stderr_tail);
    return refuse_all(it, final ? ErrorCode::not_found : ErrorCode::unavailable, "image " + image + " cannot be pulled" + on + ": " + cause,
                      "pull it there as that user with " + std::string(engine->name), false);
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
