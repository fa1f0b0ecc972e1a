#include "agent/dtrainctl/failure.h"

#include "agent/dtrainctl/words.h"

namespace dtrain::ctl {

ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid: return kUsage;
    case ErrorCode::not_found: return kNotFound;
    case ErrorCode::unavailable: return kUnreachable;
    case ErrorCode::refused:
    case ErrorCode::limit: return kRefused;
    case ErrorCode::io:
    case ErrorCode::damaged:
    case ErrorCode::internal: return kJobFailed;
  }
  return kJobFailed;
}

Failure file_failure(const std::vector<job::FileError>& errors) {
  Failure f;
  for (const job::FileError& e : errors) {
    wire::ErrorItem item;
    item.code = ErrorCode::invalid;
    item.kind = e.code;
    item.file = e.file;
    item.line = e.line;
    item.path = e.path;
    item.message = e.message;
    item.next = e.next;
    f.items.push_back(std::move(item));
  }
  return f;
}

std::string failure_text(const Failure& f) {
  std::string out;
  for (const wire::ErrorItem& item : f.items) {
    std::string line;
    if (item.file.empty()) {
      line = "dtrainctl: ";
    } else {
      line = item.file + ":";
      if (item.line != 0) line += std::to_string(item.line) + ":";
      line += " ";
    }
    if (!item.path.empty()) line += item.path + ": ";
    line += item.message;
    if (!item.next.empty()) line += "; " + item.next;
    out += printable(line) + "\n";  // it may contain text of a job file, a task or another user
  }
  return out;
}

}  // namespace dtrain::ctl
