// An agent that answers as a test says: a Unix socket, a thread, a function from request to replies.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/wire/control.h"

namespace dtrain::ctl {

inline wire::LogChunk chunk(const std::string& bytes, std::uint32_t attempt = 1, const std::string& task = "worker-0") {
  wire::LogChunk c;
  c.task = task;
  c.generation = 1;
  c.attempt = attempt;
  c.bytes = bytes;
  return c;
}

class FakeAgent {
 public:
  // What goes back for one request. close: the connection is cut after that, as by an agent that dies.
  struct Answer {
    std::vector<wire::Message> messages;
    bool close = false;
  };
  using Handler = std::function<Answer(const wire::Message&)>;

  FakeAgent(std::string path, Handler handler);
  ~FakeAgent() { stop(); }
  void stop();  // closes everything, removes the socket
  void start();
  // Every request so far, in order of arrival.
  std::vector<wire::Message> requests() const;

 private:
  void serve();
  std::string path_;
  Handler handler_;
  int listener_ = -1, stop_fd_ = -1;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::vector<wire::Message> requests_;
};

template <class T>
wire::Message reply_to(const wire::Message& request, wire::MessageType type, const T& payload, bool last = true) {
  return wire::make_message(type, request.request, payload, last);
}

// A directory of its own under the system's temporary one, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What a run of dtrainctl in this process said and answered.
struct Ran {
  int code = 0;
  std::string out, err;
};
Ran run_ctl(const std::vector<std::string>& args);

}  // namespace dtrain::ctl
