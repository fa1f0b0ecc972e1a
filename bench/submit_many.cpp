// submit_many SOCKET COUNT PROGRAM: submits that many jobs of one task, which runs the program, over one connection without
// waiting for answers, then watches until all have succeeded. Once for each program: the jobs have its name. Prints
// microseconds from the first submit to the last acknowledgement, and to the last job's end. What a thousand dtrainctl
// processes cost is not in it. Exit 1: one was refused, or failed.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "bench/control_client.h"
#include "common/job/job_spec.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace dtrain;
using bench::Client;
using bench::connect_to;

// Bounds of the pause between two looks, each of which costs the agent some milliseconds of a processor: the pause is
// half of the time that is left at the rate so far.
constexpr std::chrono::milliseconds kShortestPause{5}, kLongestPause{250};
constexpr std::chrono::seconds kPatience{120};

wire::SubmitRequest one_task(const std::string& program, int number) {
  job::JobSpec spec;
  spec.name = program.substr(program.rfind('/') + 1) + "-" + std::to_string(number);
  std::replace(spec.name.begin(), spec.name.end(), '_', '-');
  spec.framework = job::Framework::generic;
  spec.policy.placement = job::Placement::spread;
  job::RoleSpec role;
  role.replicas = role.min_replicas = 1;
  role.command = {program};
  spec.roles["worker"] = role;
  wire::SubmitRequest request;
  request.spec = wire::encode(spec);
  return request;
}

// Returns how many jobs have succeeded; -1: one did not, or the agent gave no answer.
int succeeded(Client& client) {
  if (!client.send(wire::MessageType::query_jobs, wire::JobsRequest{})) return -1;
  const auto reply = client.receive();
  const auto jobs = reply ? wire::decode<wire::JobsReply>(reply->payload) : fail(ErrorCode::io, "");
  if (!jobs) return -1;
  int done = 0;
  for (const wire::JobView& job : jobs->jobs) {
    if (job.state == "Failed") return -1;
    done += job.state == "Succeeded";
  }
  return done;
}

Clock::duration pause_before_look(Clock::duration spent, int done, int count) {
  const Clock::duration half = done > 0 ? spent * (count - done) / done / 2 : Clock::duration::max();
  return std::clamp<Clock::duration>(half, kShortestPause, kLongestPause);
}

long long micros(Clock::duration time) {
  return static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 4 ? bench::positive(argv[2]) : 0;
  if (count == 0) {
    std::fputs("usage: submit_many SOCKET COUNT PROGRAM\n", stderr);
    return 64;
  }
  const int fd = connect_to(argv[1]);
  if (fd < 0) {
    std::perror("submit_many: could not connect");
    return 1;
  }
  Client client(fd);
  const auto begin = Clock::now();
  std::thread sender([&] {  // a thread, because answers are read meanwhile
    for (int number = 0; number < count; ++number)
      if (!client.send(wire::MessageType::submit, one_task(argv[3], number))) return;
  });
  bool good = true;
  for (int answers = 0; good && answers < count; ++answers) {
    const auto reply = client.receive();
    good = reply && reply->type == wire::MessageType::submitted;
  }
  if (!good) shutdown(fd, SHUT_RDWR);  // ends the sender too
  sender.join();
  const auto acknowledged = Clock::now();
  int done = 0;
  while (good && done < count && Clock::now() < begin + kPatience) {
    done = succeeded(client);
    good = done >= 0;
    if (done < count) std::this_thread::sleep_for(pause_before_look(Clock::now() - begin, done, count));
  }
  if (!good || done < count) {
    std::fputs("submit_many: a submit was refused, a job failed, or they did not end in time\n", stderr);
    return 1;
  }
  std::printf("%lld %lld\n", micros(acknowledged - begin), micros(Clock::now() - begin));
  return 0;
}
