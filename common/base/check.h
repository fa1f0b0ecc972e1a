// CHECK aborts on a broken invariant of our own, always on. Never used on what a peer, a user or a disk supplied.
#pragma once

#include <string_view>

namespace dtrain {
[[noreturn]] void check_failed(const char* file, int line, const char* expression);
}

#define CHECK(expression)                                                       \
  do {                                                                          \
    if (!(expression)) ::dtrain::check_failed(__FILE__, __LINE__, #expression); \
  } while (false)
