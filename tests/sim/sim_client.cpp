#include "tests/sim/sim_client.h"

#include "tests/sim/job_factory.h"

namespace dtrain::sim {
namespace {

using wire::MessageType;

constexpr const char* kJobNames[] = {"digits", "speech", "ranker", "vision", "search", "prices"};
constexpr std::size_t kUsedNames = 3;       // few: names must collide
constexpr std::uint64_t kRepliesCoded = 5;  // every such reply is encoded again and compared
constexpr Duration kLongestWatch = 20s;
constexpr std::uint32_t kUid = 1000;

bool by_operator(MessageType type) {
  return type == MessageType::drain || type == MessageType::recover_quorum || type == MessageType::leave;
}

constexpr std::uint64_t kWideOneIn = 3;  // jobs, where there are many hosts

template <class T>
bool round_trip(const wire::Message& message, bool compare, std::string& why) {
  auto decoded = wire::decode<T>(message.payload);
  if (!decoded) {
    why = decoded.error().message;
    return false;
  }
  if (compare && wire::encode(*decoded) != message.payload) {
    why = "encoding it again gives other bytes";
    return false;
  }
  return true;
}

}  // namespace

SimClient::SimClient(Timeline& timeline, Rng rng, JobBook& book, Hooks hooks)
    : timeline_(timeline), rng_(rng), book_(book), hooks_(std::move(hooks)) {}

bool SimClient::streams(MessageType type) { return type == MessageType::watch || type == MessageType::logs; }

template <class T>
node::ConnectionId SimClient::send(SentRequest sent, const T& payload) {
  const node::ConnectionId connection = ++connections_;
  sent.request = 1 + rng_.below(3);
  sent.at = timeline_.now();
  sent.host = host_;
  const std::string body = wire::encode(wire::make_message(sent.type, sent.request, payload));
  const std::uint64_t request = sent.request;
  sent.number = connection;
  hooks_.asked(open_[connection] = std::move(sent));
  const std::size_t host = host_;
  hooks_.post(host, node::ConnectionOpened{connection, node::Caller{"mluser", by_operator(open_[connection].type) ? 0 : kUid}});
  hooks_.post(host, node::Request{connection, request, body});
  return connection;
}

void SimClient::hang_up(node::ConnectionId connection) {
  const auto it = open_.find(connection);
  if (it == open_.end()) return;
  const std::size_t host = it->second.host;
  open_.erase(it);
  hooks_.post(host, node::ConnectionClosed{connection});
}

bool SimClient::reached(std::size_t host) {
  host_ = host;
  return hooks_.agent_listens(host);
}

void SimClient::submit(job::JobSpec spec, std::uint64_t tag, bool replace, bool anew) {
  if (!reached(hooks_.choose_host())) return;
  const JobFile& file = book_.file(tag) != nullptr ? *book_.file(tag) : book_.add_file(std::move(spec), tag);
  if (replace) book_.replace_asked(file.spec.name, tag, timeline_.now());
  SentRequest sent;
  sent.type = MessageType::submit;
  sent.tag = tag;
  sent.anew = anew;
  wire::SubmitRequest request;
  request.spec = file.encoded;
  request.request_id = "request-" + std::to_string(tag) + (anew ? "-" + std::to_string(connections_) : "");
  request.replace = replace;
  unacknowledged_.insert(tag);
  if (!file.spec.package_digest.empty()) hooks_.upload(host_, file.spec.package_digest);
  send(std::move(sent), request);
}

void SimClient::action(wire::ActionRequest request) {
  if (!reached(hooks_.choose_host())) return;
  book_.asked(request, timeline_.now());
  SentRequest sent;
  sent.type = MessageType::action;
  sent.action = request;
  send(std::move(sent), request);
}

void SimClient::drain(wire::DrainRequest request) {
  if (!reached(hooks_.choose_host())) return;
  if (request.on) book_.host_drained(timeline_.now());
  SentRequest sent;
  sent.type = MessageType::drain;
  sent.drain = request;
  send(std::move(sent), request);
}

void SimClient::recover_quorum(std::size_t host, bool force) {
  if (!reached(host)) return;
  SentRequest sent;
  sent.type = MessageType::recover_quorum;
  send(std::move(sent), wire::RecoverRequest{true, force});
}

void SimClient::forget_node(std::size_t host, const std::string& node) {
  if (!reached(host)) return;
  SentRequest sent;
  sent.type = MessageType::leave;
  send(std::move(sent), wire::LeaveRequest{node});
}

void SimClient::observe() {
  if (!reached(hooks_.newest_host())) return;
  SentRequest sent;
  sent.type = MessageType::query_jobs;
  sent.observer = true;
  send(std::move(sent), wire::JobsRequest{});
}

void SimClient::cancel_all() {
  for (const auto& [id, job] : book_.jobs()) {
    if (job.gone || is_final(job.state)) continue;
    wire::ActionRequest request;
    request.action = wire::Action::cancel;
    request.job = job.name;
    action(std::move(request));
  }
}

const KnownJob* SimClient::random_job_of_book() {
  if (book_.jobs().empty()) return nullptr;
  // Rather a recent one.
  auto it = book_.jobs().end();
  for (std::uint64_t back = 1 + rng_.below(std::min<std::uint64_t>(3, book_.jobs().size())); back != 0; --back) --it;
  return &it->second;
}

void SimClient::act() {
  if (!reached(hooks_.choose_host())) return;
  const KnownJob* job = random_job_of_book();
  if (!unacknowledged_.empty() && rng_.chance(1, 2)) {  // again, with the same request id
    const std::uint64_t tag = *unacknowledged_.begin();
    return submit({}, tag, false);
  }
  if (!removed_.empty() && rng_.chance(1, 2)) return submit_again(std::exchange(removed_, {}));
  const std::uint64_t deed = rng_.below(10);
  if (job == nullptr || deed < (hungry_ != 0 ? 6 : 3)) return submit_something();
  if (deed < (hungry_ != 0 ? 8 : 6)) return act_on_job(*job);
  query(job);
}

// People do so right behind a delete, with the same file.
void SimClient::submit_again(const std::string& name) {
  const JobFile* last = nullptr;
  for (const auto& [tag, file] : book_.files())
    if (file.spec.name == name) last = &file;
  if (last != nullptr) submit({}, last->tag, false, true);
}

void SimClient::submit_something() {
  const std::string name = kJobNames[rng_.below(hungry_ != 0 ? std::size(kJobNames) : kUsedNames)];
  const JobFile* earlier = nullptr;
  for (const auto& [tag, file] : book_.files())
    if (file.spec.name == name) earlier = &file;
  if (earlier != nullptr && rng_.chance(1, 4)) return submit({}, earlier->tag, rng_.chance(1, 2), rng_.chance(1, 2));  // the same again
  const std::uint64_t tag = next_tag();
  if (earlier != nullptr && rng_.chance(1, 3)) return submit(changed_job(earlier->spec, tag), tag, rng_.chance(1, 2));
  job::JobSpec spec = random_job(name, tag, rng_);
  if (hungry_ != 0) make_hungry(spec, hungry_);
  if (dynamic_) make_dynamic(spec);
  if (keeping_) make_keeping(spec);
  if (elastic_ != 0 && tag % 2 == 0) make_shrinking(spec, elastic_, tag);
  if (leaving_) make_leaving(spec, tag);
  if (rehearsing_ && tag % 2 == 0) spec.rehearsal = "it";
  if (many_ != 0 && rng_.chance(1, kWideOneIn)) make_wide(spec, many_, rng_);
  if (rng_.chance(1, 15)) {
    spec.generate_name = name + "-";
    spec.name.clear();
  }
  submit(std::move(spec), tag, rng_.chance(3, 4));
}

void SimClient::act_on_job(const KnownJob& job) {
  wire::ActionRequest request;
  request.job = job.name;
  request.request_id = "action-" + std::to_string(connections_);
  switch (rng_.below(12)) {
    case 0: request.action = wire::Action::cancel; break;
    case 1:
    case 2: request.action = wire::Action::suspend; break;
    case 3:
    case 4:
    case 5: request.action = wire::Action::resume; break;
    case 6:
      request.action = wire::Action::restart;
      request.from_scratch = rng_.chance(1, 3);
      break;
    case 7:
      request.action = wire::Action::restart;
      request.task = "worker-0";
      break;
    case 8:
    case 9:
      request.action = wire::Action::scale;
      request.role = "worker";
      request.replicas = static_cast<std::uint32_t>(1 + rng_.below(4));
      if (many_ != 0 && rng_.chance(1, 2)) request.replicas = wide_replicas(many_, rng_);
      if (asks_for_gpus(job.name, "worker")) return query(&job);
      break;
    case 10:
      request.action = wire::Action::remove;
      request.force = rng_.chance(1, 2);
      removed_ = job.name;
      break;
    default: request.action = wire::Action::rerun; break;
  }
  action(std::move(request));
}

// Scaled up, such a job might ask for more GPUs than the host has, and would wait for ever, and rightly so.
bool SimClient::asks_for_gpus(const std::string& name, const std::string& role) const {
  for (const auto& [id, job] : book_.jobs()) {
    const job::JobSpec* spec = job.name == name ? book_.spec_of(id) : nullptr;
    if (spec == nullptr) continue;
    const auto it = spec->roles.find(role);
    if (it != spec->roles.end() && it->second.resources.gpus != 0) return true;
  }
  return false;
}

void SimClient::query(const KnownJob* job) {
  const std::string name = job == nullptr ? "" : job->name;
  SentRequest sent;
  const auto ask = [&](MessageType type, const auto& payload) {
    sent.type = type;
    return send(sent, payload);
  };
  node::ConnectionId connection = 0;
  switch (rng_.below(11)) {
    case 0: connection = ask(MessageType::query_tasks, wire::JobName{name}); break;
    case 1: connection = ask(MessageType::describe_job, wire::JobName{name}); break;
    case 2: connection = ask(MessageType::query_nodes, wire::NodeName{}); break;
    case 3: connection = ask(MessageType::query_status, wire::JobName{}); break;
    case 4: connection = ask(MessageType::query_events, wire::EventsRequest{rng_.chance(1, 2) ? name : "", 0, false}); break;
    case 5: connection = ask(MessageType::query_task_specs, wire::TaskSpecsRequest{name, ""}); break;
    case 6: connection = ask(MessageType::query_checkpoints, wire::CheckpointsRequest{name, rng_.chance(1, 4)}); break;
    case 7: connection = ask(MessageType::logs, wire::LogsRequest{.job = name, .task = {}}); break;
    case 8: connection = ask(MessageType::query_jobs, wire::JobsRequest{}); break;
    case 9:
      if (const JobFile* file = job == nullptr ? nullptr : book_.file(job->tag)) {
        connection = ask(MessageType::plan, wire::SubmitRequest{file->encoded, "", false});
        break;
      }
      [[fallthrough]];
    default: connection = ask(MessageType::watch, wire::WatchRequest{name, 0, 100}); break;
  }
  // Some callers hang up before the answer; a stream ends only so.
  if (streams(sent.type)) {
    const auto until = Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(kLongestWatch.count()))));
    timeline_.after(until, [this, connection] { hang_up(connection); });
  } else if (rng_.chance(1, 20)) {
    hang_up(connection);
  }
}

void SimClient::receive(node::ConnectionId connection, const std::string& body, std::uint64_t index) {
  const auto it = open_.find(connection);
  if (it == open_.end()) return;  // we hung up
  auto message = wire::decode<wire::Message>(body);
  if (!message) return hooks_.complain("replies_decode", message.error().message);
  SentRequest& sent = it->second;
  if (message->request != sent.request)
    return hooks_.complain("single_completion",
                           "a reply carries request " + std::to_string(message->request) + ", asked was " + std::to_string(sent.request));
  sent.answered = true;
  sent.index = index;
  const SentRequest copy = sent;
  if (message->last) hang_up(connection);
  check_payload(copy, *message, index);
  hooks_.replied(copy, *message);
}

void SimClient::check_payload(const SentRequest& sent, const wire::Message& message, std::uint64_t index) {
  const bool compare = ++received_ % kRepliesCoded == 0;
  std::string why;
  bool good = true;
  switch (message.type) {
    case MessageType::error: {
      auto reply = wire::decode<wire::ErrorReply>(message.payload);
      good = reply.has_value();
      if (!reply) break;
      for (const auto& item : reply->errors)
        if (item.code == ErrorCode::internal) hooks_.complain("no_internal_error", item.message);
      // What a well-formed job file of a simulated user is refused for is state, never the file itself.
      if (sent.type == MessageType::submit)
        for (const auto& item : reply->errors)
          if (item.code == ErrorCode::invalid) hooks_.complain("valid_job_accepted", item.path + ": " + item.message);
      if (sent.type == MessageType::submit) unacknowledged_.erase(sent.tag);
      break;
    }
    case MessageType::submitted:
      good = round_trip<wire::SubmitReply>(message, compare, why);
      if (good) on_submitted(sent, message);
      break;
    case MessageType::jobs: {
      auto reply = wire::decode<wire::JobsReply>(message.payload);
      good = reply.has_value();
      if (good && sent.observer) hooks_.looked(*reply, index);
      break;
    }
    case MessageType::tasks: good = round_trip<wire::TasksReply>(message, compare, why); break;
    case MessageType::description: good = round_trip<wire::JobDescription>(message, compare, why); break;
    case MessageType::nodes: good = round_trip<wire::NodesReply>(message, compare, why); break;
    case MessageType::status: good = round_trip<wire::StatusView>(message, compare, why); break;
    case MessageType::events: good = round_trip<wire::EventsReply>(message, compare, why); break;
    case MessageType::task_specs: good = round_trip<wire::TaskSpecsReply>(message, compare, why); break;
    case MessageType::checkpoints: good = round_trip<wire::CheckpointsReply>(message, compare, why); break;
    case MessageType::recovery: good = round_trip<wire::RecoveryView>(message, compare, why); break;
    case MessageType::update: good = round_trip<wire::JobUpdate>(message, compare, why); break;
    default: break;
  }
  if (!good) hooks_.complain("replies_decode", why.empty() ? "a reply does not decode" : why);
}

void SimClient::on_submitted(const SentRequest& sent, const wire::Message& message) {
  const auto reply = wire::decode<wire::SubmitReply>(message.payload);
  if (!reply) return;
  if (sent.type == MessageType::action) {  // rerun. Of which file it is the next list says where its submit was not answered (seed 12944)
    if (KnownJob* job = book_.find(reply->id)) job->acknowledged = true;
    return;
  }
  unacknowledged_.erase(sent.tag);
  book_.know(reply->id, sent.tag, reply->name, timeline_.now()).acknowledged = true;
}

void SimClient::agent_died(std::size_t host) {
  std::erase_if(open_, [&](const auto& entry) { return entry.second.host == host; });
}

}  // namespace dtrain::sim
