// The daemon's side of dtrainctl on other machines: opens the door once access.keys names anybody, and finds the
// caller that a key's user is here.
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/dtraind/daemon.h"
#include "common/node/key_access.h"
#include "common/wire/key_file.h"

namespace dtrain::daemon {
namespace {

std::map<net::CurveKey, std::string> users_of(const Config& config) {
  std::map<net::CurveKey, std::string> users;
  for (const auto& [text, user] : config.client_keys)
    if (const auto key = wire::parse_key(text)) users.emplace(*key, user);
  return users;
}

}  // namespace

Status Daemon::open_door() {
  reload_door();
  return add_source(
      -1, [this] { return door_ ? door_->deadline() : door_due_; }, [this] { serve_door(); });
}

void Daemon::serve_door() {
  const Instant now = loop_->now().boot;
  if (door_) door_->dispatch(now);
  else if (door_due_ <= now) try_door();
}

// To be called after the configuration or the key was read again.
void Daemon::reload_door() {
  if (!links_ || !control_) return;
  if (!door_) {
    door_due_ = kNever;
    return config_.client_keys.empty() ? void() : try_door();
  }
  if (auto done = door_->rekey(*prepared_.keys); !done)
    log_.write(LogLevel::error, "clients.not-listening",
               {{"error", done.error().text()}, {"next", "it is tried again every second; free descriptors"}});
  door_->allow(users_of(config_));
}

void Daemon::try_door() {
  const wire::Endpoint at{listens_.ip, static_cast<std::uint16_t>(listens_.port + net::kClientPortAbove)};
  net::ClientDoor::World world;
  world.welcome = [this](const std::string& user) { return caller_of_key(user); };
  world.adopt = [this](int fd, const node::Caller& caller) { control_->adopt(fd, caller, *this); };
  auto door = net::ClientDoor::open(at, *prepared_.keys, std::move(world), log_);
  Status opened = door ? Status() : fail(door.error());
  if (door) {
    door_ = std::move(*door);
    door_->allow(users_of(config_));
    opened = loop_->watch(door_->fd(), EPOLLIN, [this](std::uint32_t) {
      serve_door();
      drain();
    });
  }
  if (opened) {
    door_due_ = kNever;
    return log_.write(LogLevel::info, "clients.listening", {{"listen", at.text()}});
  }
  door_.reset();
  if (door_due_ == kNever)
    log_.write(LogLevel::error, "clients.not-listening",
               {{"error", opened.error().text()}, {"next", "it is tried again every second, for clients of other machines"}});
  door_due_ = loop_->now().boot + kDoorRetry;
}

Result<node::Caller> Daemon::caller_of_key(const std::string& user) {
  const auto could_not = [&](ErrorCode code, const std::string& cause, const std::string& next) {
    return fail(code, "could not serve this connection: its key stands for " + user + ", " + cause, next);
  };
  const auto uid = user_ids_.uid_of(user, loop_->now().boot);
  if (!uid) return could_not(ErrorCode::unavailable, "whom this host's directory of users cannot be asked for", "try again later");
  if (*uid == net::UserIds::kNoUid)
    return could_not(ErrorCode::refused, "whom this host does not know", "create the account there, or ask another agent");
  // Roles and jobs use the name that this host gives the account; a directory may know it by several.
  const std::string& name = user_names_.name_of(*uid, loop_->now().boot);
  if (name != user)
    return could_not(ErrorCode::refused, "whom this host calls " + (name.empty() ? "uid " + std::to_string(*uid) : name),
                     "write that name under access.keys in dtraind.yaml there");
  const node::Caller caller{user, *uid};
  if (auto may = node::permit_key(caller, config_.access, ::geteuid()); !may) return fail(may.error());
  return caller;
}

}  // namespace dtrain::daemon
