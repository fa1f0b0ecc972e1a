// Expected failures. A Result<T> holds a T or an Error whose text reads
//   could not <verb> <object>: <cause>; <next step>
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace dtrain {

// Stable machine-readable classes; dtrainctl maps them to its exit codes (contract: 2, 3, 4, 5).
enum class ErrorCode : unsigned char {
  invalid,      // the input is wrong (usage, invalid file)
  not_found,    // the named object does not exist
  unavailable,  // cannot be reached or done at the moment
  refused,      // not permitted, conflict, no quorum
  limit,        // a named limit was reached
  io,           // the operating system reported an error
  damaged,      // stored bytes do not verify
  internal,     // a bug of dtrain that could be contained
};
constexpr ErrorCode enum_last(ErrorCode) { return ErrorCode::internal; }

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;  // could not <verb> <object>: <cause>
  std::string next;     // what the reader can do; may be empty

  std::string text() const { return next.empty() ? message : message + "; " + next; }
  template <class V>
  void fields(V& v) {
    v("code", code);
    v("message", message);
    v("next", next);
  }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string next = "") {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(next)});
}
inline tl::unexpected<Error> fail(Error e) { return tl::unexpected<Error>(std::move(e)); }

}  // namespace dtrain
