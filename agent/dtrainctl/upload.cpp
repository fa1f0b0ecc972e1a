#include "agent/dtrainctl/upload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/dtrainctl/progress.h"
#include "agent/dtrainctl/words.h"
#include "agent/store/package.h"
#include "common/job/manifest.h"

namespace dtrain::ctl {
namespace {

// A mistake of the file as a whole, in the parser's form.
Failure file_mistake(const std::string& file, const std::string& path, const std::string& message, const std::string& next,
                     const char* code = "missing") {
  job::FileError e;
  e.code = code;
  e.file = file;
  e.path = path;
  e.message = message;
  e.next = next;
  return file_failure({e});
}

// Reads a little more than the limit, which the parser refuses. For a file the true size can be given.
Outcome<std::string> read_text(int fd, const std::string& name) {
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && static_cast<std::size_t>(info.st_size) > limits::kJobFileBytes)
    return failed(file_mistake(
        name, "", "the file has " + std::to_string(info.st_size) + " bytes; at most " + std::to_string(limits::kJobFileBytes) + " are read",
        "put data into the package", "limit"));
  std::string text;
  char buffer[64 << 10];
  while (text.size() <= limits::kJobFileBytes) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(file_mistake(name, "", "could not read the job file: " + std::string(std::strerror(errno)), ""));
    if (n == 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

Outcome<std::string> read_file(Session& session, const std::string& name) {
  UniqueFd fd;
  if (name != "-") fd = UniqueFd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (name != "-" && !fd)
    return failed(file_mistake(name, "", "could not open the job file: " + std::string(std::strerror(errno)),
                               "give a job file that you can read, or - for stdin"));
  return read_text(fd ? fd.get() : session.io.in_fd, name);
}

Outcome<void> send_file(Connection& connection, int fd, const std::string& digest, const std::string& path, const Session& session) {
  wire::PutBlobRequest chunk;
  chunk.digest = digest;
  while (!chunk.last) {
    chunk.bytes.resize(limits::kBlobChunkBytes);
    if (!read_into(fd, chunk.bytes))
      return failed(ErrorCode::io, "could not read packed package " + path + ": " + std::strerror(errno), "try again");
    chunk.last = chunk.bytes.size() < limits::kBlobChunkBytes;  // an exact multiple ends with an empty chunk
    if (chunk.last) {
      auto stored =
          connection.call<wire::BlobReply>(wire::MessageType::put_blob, chunk, wire::MessageType::blob, session.answer_deadline());
      if (!stored) return failed(stored.error());
    } else {
      auto more = connection.call<wire::Empty>(wire::MessageType::put_blob, chunk, wire::MessageType::ok, session.answer_deadline());
      if (!more) return failed(more.error());
    }
    chunk.offset += chunk.bytes.size();
  }
  return {};
}

job::ParseOptions parse_options(const std::string& name, const FileOptions& options) {
  job::ParseOptions parse;
  parse.file_name = name;
  parse.params = options.params;
  parse.sets = options.sets;
  return parse;
}

// Finds the package's directory: that of --package, or that of the file, seen from the directory of the file.
Outcome<LoadedJob> with_package_dir(job::ParsedJob parsed, const FileOptions& options, std::string name, std::string base_dir) {
  if (!options.package.empty()) {
    parsed.package_path = options.package;
    name = "--package";
    base_dir = ".";
  }
  LoadedJob job;
  job.spec = std::move(parsed.spec);
  if (parsed.package_path.empty()) return job;
  std::error_code wrong;
  const std::filesystem::path directory = std::filesystem::path(base_dir) / parsed.package_path;
  if (!std::filesystem::is_directory(directory, wrong))
    return failed(file_mistake(name, "spec.package",
                               "could not read package " + directory.string() + ": " + (wrong ? wrong.message() : "not a directory"),
                               "give a directory, as seen from " + (base_dir == "." ? std::string("the current directory") : base_dir)));
  if (::access(directory.c_str(), R_OK | X_OK) != 0)
    return failed(file_mistake(name, "spec.package", "could not read package " + directory.string() + ": " + std::strerror(errno),
                               "make it readable for you"));
  job.package_dir = directory.string();
  return job;
}

}  // namespace

Outcome<LoadedJob> parse_job(Session& session, std::string_view text, const std::string& name, const FileOptions& options,
                             const std::string& base_dir) {
  job::ParsedJob parsed = job::parse_manifest(text, parse_options(name, options));
  if (!parsed.errors.empty()) return failed(file_failure(parsed.errors));
  session.warn(parsed.warnings);
  return with_package_dir(std::move(parsed), options, name, base_dir);
}

Outcome<job::JobFile> read_jobs(Session& session, const FileOptions& options) {
  auto text = read_file(session, options.file);
  if (!text) return failed(text.error());
  if (!options.app_config.empty()) {
    const auto app = read_file(session, options.app_config);
    if (!app) return failed(app.error());
    *text += "\n---\n" + *app;
  }
  wire::ManifestSettings settings;
  if (job::needs_settings(*text)) {
    auto asked =
        session.ask_surely<wire::ManifestSettings>(wire::MessageType::query_manifests, wire::Empty{}, wire::MessageType::manifests);
    if (!asked && asked.error().code() != ErrorCode::invalid) return failed(asked.error());  // invalid: an agent that has no such settings
    if (asked) settings = std::move(*asked);
  }
  job::JobFile file = job::read_job_file(*text, parse_options(options.file, options), settings);
  if (!file.errors.empty()) {  // a warning may explain the mistake, such as a misspelt key that has no effect
    session.warn(file.warnings);
    for (const job::ParsedJob& parsed : file.jobs) session.warn(parsed.warnings);
    return failed(file_failure(file.errors));
  }
  return file;
}

Outcome<std::vector<LoadedJob>> load_jobs(Session& session, const FileOptions& options) {
  auto file = read_jobs(session, options);
  if (!file) return failed(file.error());
  const std::string parent = options.file == "-" ? "" : std::filesystem::path(options.file).parent_path().string();
  session.warn(file->warnings);
  std::vector<LoadedJob> jobs;
  for (job::ParsedJob& parsed : file->jobs) {
    session.warn(parsed.warnings);
    const std::string base = parent.empty() ? "." : parent;
    auto job = with_package_dir(std::move(parsed), options, options.file, base);
    if (!job) return failed(job.error());
    job->named = job::prefix_among(file->jobs.size(), job->spec);
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

Outcome<LoadedJob> load_job(Session& session, const FileOptions& options) {
  auto jobs = load_jobs(session, options);
  if (!jobs) return failed(jobs.error());
  if (jobs->size() == 1) return std::move(jobs->front());
  return failed(file_mistake(options.file, "", "the file holds " + std::to_string(jobs->size()) + " jobs, and one can be followed",
                             "hand them in with dtrainctl submit", "conflict"));
}

Outcome<Upload> upload_package(Session& session, const std::string& directory) {
  auto packed = store::pack_directory(directory);
  if (!packed) {
    Failure f(packed.error());
    // A package that is too large is a mistake of the user, not a refusal of the agent: exit code 2.
    if (f.code() == ErrorCode::limit) f.items.front().code = ErrorCode::invalid;
    return failed(std::move(f));
  }
  struct Remove {
    const std::string& path;
    ~Remove() { ::unlink(path.c_str()); }
  } remove{packed->path};
  UniqueFd file(::open(packed->path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return failed(ErrorCode::io, "could not open packed package " + packed->path + ": " + std::strerror(errno), "try again");
  auto connection = session.connect_to_restarting(session.answer_deadline());
  if (!connection) return failed(connection.error());
  auto known = connection->call<wire::BlobReply>(wire::MessageType::has_blob, wire::BlobRequest{packed->digest}, wire::MessageType::blob,
                                                 session.answer_deadline());
  if (!known) return failed(known.error());
  if (!known->present)
    if (auto sent = send_file(*connection, file.get(), packed->digest, packed->path, session); !sent) return failed(sent.error());
  return Upload{packed->digest, packed->content, !known->present};
}

Outcome<std::string> ended_state(Session& session, const wire::SubmitReply& reply) {
  const auto jobs = session.ask_surely<wire::JobsReply>(wire::MessageType::query_jobs, wire::JobsRequest{reply.name, {}, "", ""},
                                                        wire::MessageType::jobs);
  if (!jobs) return failed(jobs.error());
  for (const wire::JobView& job : jobs->jobs)
    if (job.id == reply.id && is_final_state(job.state)) return job.state;
  return std::string();
}

std::string unchanged_text(const std::string& name, const std::string& ended, const std::string& else_what) {
  return "unchanged" + (ended.empty() ? else_what : "; it has ended: " + ended + "; dtrainctl rerun " + name + " runs it again");
}

Outcome<wire::SubmitReply> submit_job(Session& session, LoadedJob job, bool replace) {
  wire::SubmitRequest request;
  request.request_id = make_request_id();
  request.replace = replace;
  bool again = false;
  auto reply = with_package(session, job.package_dir, [&](const Upload& package) {
    job.spec.package_digest = package.digest;
    job.spec.package_content = package.content;
    request.spec = wire::encode(job.spec);
    return session.change<wire::SubmitReply>(wire::MessageType::submit, request, wire::MessageType::submitted,
                                             package.digest.empty() ? kAnswerTime : kPackageTime, &again);
  });
  if (!reply) return reply;
  session.warn(reply->warnings, job.named);
  reply->unchanged = reply->unchanged && !again;  // otherwise that may be the request's own first attempt
  return reply;
}

}  // namespace dtrain::ctl
