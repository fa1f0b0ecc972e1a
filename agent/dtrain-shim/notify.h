// NOTIFY_SOCKET of the task: sd_notify(3) datagrams.
#pragma once

#include "agent/dtrain-shim/launch.h"
#include "agent/dtrain-shim/passed.h"

namespace dtrain::shim {

struct Notification {
  bool ready = false, stopping = false;
  uint32_t watchdogs = 0;
  int sender = 0;  // its process; 0: another namespace of processes than this one's
  bool has_status = false;
  char status[kStatusBytes];
  uint16_t status_bytes = 0;
};

class NotifySocket {
 public:
  // Binds <current directory>/notify, or the abstract name in the launch file, and adds the variable to the
  // environment. False: errno.
  bool open(Launch& launch);
  int fd() const { return fd_; }
  // Takes one datagram. Returns false if there was none, if is_stuck(), or until flooded_until(). A datagram of a stranger or without
  // meaning leaves `out` empty. Descriptors that came with it are dropped (passed.h), which is what systemd-notify's
  // barrier waits for.
  bool receive(Notification& out);
  // The first waiting datagram carries descriptors and cannot be dropped now.
  bool is_stuck() const { return stuck_; }
  // Everybody can send to an abstract socket. After many datagrams of strangers it is left alone until then; 0: it is not.
  int64_t flooded_until() const { return strangers_ < kMostStrangers ? 0 : strangers_until_; }
  // To be called before the socket is closed other than by an exit. False: closing would not be safe.
  bool shut();

 private:
  static constexpr int kMostStrangers = 100;              // datagrams,
  static constexpr int64_t kStrangersTime = 100'000'000;  // in this time (ns); then they are counted from 0 again
  bool take(Notification& out);

  int fd_ = -1;
  uint32_t uid_ = 0;  // datagrams of this user count, besides those of root and of the shim itself
  bool stuck_ = false;
  int strangers_ = 0;
  int64_t strangers_until_ = 0;
  Passed passed_;
  Text<160> variable_;
};

}  // namespace dtrain::shim
