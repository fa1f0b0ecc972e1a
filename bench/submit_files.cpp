// submit_files SOCKET: submits the job file of each path that comes as a line on its standard input, over one connection, and prints
// two CLOCK_MONOTONIC times in nanoseconds: just before the request was sent, and when it was acknowledged. What is before that, the
// start of a dtrainctl and the reading of the file, is not in them. Exit 1: a file was wrong, or a job refused.
#include <time.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "bench/control_client.h"
#include "common/job/manifest.h"

namespace {

using namespace dtrain;

long long monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

bool submit(bench::Client& client, const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  job::ParseOptions options;
  options.file_name = path;
  const job::ParsedJob parsed = job::parse_manifest(text, options);
  for (const auto& mistake : parsed.errors) std::cerr << "submit_files: " << mistake.text() << "\n";
  if (!parsed.errors.empty()) return false;
  wire::SubmitRequest request;
  request.spec = wire::encode(parsed.spec);
  const long long sent = monotonic_ns();
  if (!client.send(wire::MessageType::submit, request)) return false;
  const auto reply = client.receive();
  if (!reply || reply->type != wire::MessageType::submitted) return false;
  std::cout << sent << " " << monotonic_ns() << std::endl;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: submit_files SOCKET <PATHS\n", stderr);
    return 64;
  }
  const int fd = bench::connect_to(argv[1]);
  if (fd < 0) {
    std::perror("submit_files: could not connect");
    return 1;
  }
  bench::Client client(fd);
  for (std::string path; std::getline(std::cin, path);) {
    if (submit(client, path)) continue;
    std::cerr << "submit_files: could not submit " << path << "\n";
    return 1;
  }
  return 0;
}
