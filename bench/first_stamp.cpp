// first_stamp FILE: the measured task of bench/restart. Its first act is to append its CLOCK_MONOTONIC time and pid, as
// one line, to FILE (a named pipe); then it waits to be killed. Static, so that its own start costs next to nothing.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

namespace {

char* put_number(char* at, long long number) {
  char digits[20];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) *at++ = digits[--count];
  return at;
}

}  // namespace

int main(int argc, char** argv) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (argc != 2) return 64;
  char line[64];
  char* at = put_number(line, now.tv_sec * 1'000'000'000LL + now.tv_nsec);
  *at++ = ' ';
  at = put_number(at, getpid());
  *at++ = '\n';
  const int fd = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0 || write(fd, line, static_cast<size_t>(at - line)) < 0) return 74;
  while (true) pause();
}
