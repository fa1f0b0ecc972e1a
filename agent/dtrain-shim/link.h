// The shim's side of its connection to the agent: one at a time, the newest wins. Never blocks: what does not fit
// into the socket waits, and nothing is read from an agent that does not read.
#pragma once

#include "agent/dtrain-shim/protocol.h"
#include "agent/dtrain-shim/sys.h"

namespace dtrain::shim {

class Link {
 public:
  // Binds kSocketFile in the current directory. False: errno. `epoll`: the descriptor that watches fd(); a closed
  // connection is removed from it.
  bool listen(uint32_t agent_uid, int epoll);
  int listener() const { return listener_; }
  int fd() const { return fd_; }  // -1: no agent at the moment
  void adopt(int fd);             // takes an agent's connection made elsewhere (kBirthSocket)
  bool accept();                  // true: there is a new connection, which replaces any earlier one
  void close_connection();

  bool reading() const { return fd_ >= 0 && !reply_waits_; }
  bool writing() const { return fd_ >= 0 && (reply_waits_ || record_waits_); }
  bool greeted() const { return greeted_; }
  void set_greeted() { greeted_ = true; }

  enum class Received { nothing, command, closed };
  // `fds`: descriptors that came along, which are the caller's; -1: none.
  Received receive(CommandPacket& out, int (&fds)[kRunDescriptors]);
  void reply(const ReplyPacket& reply);  // reading() must have been true before
  void ask(const AskPacket& ask);        // a question that finds no room is dropped: it is asked again
  void record_changed() { record_waits_ = fd_ >= 0 && greeted_; }
  // Sends what waits: the reply, then the present record.
  void flush(const void* record, size_t record_bytes);

 private:
  bool send(const void* bytes, size_t size);  // false: try later
  int listener_ = -1, fd_ = -1, epoll_ = -1;
  uint32_t agent_uid_ = 0;
  bool greeted_ = false, reply_waits_ = false, record_waits_ = false;
  ReplyPacket reply_;
};

}  // namespace dtrain::shim
