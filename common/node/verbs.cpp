#include "common/node/verbs.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "common/node/checkpoint_copies.h"
#include "common/node/checkpoint_queries.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/checkups.h"
#include "common/node/job_requests.h"
#include "common/node/member_requests.h"
#include "common/node/package_requests.h"
#include "common/node/packages.h"
#include "common/node/requests.h"
#include "common/node/stream_requests.h"
#include "common/node/view_requests.h"

namespace dtrain::node {
namespace {

using Type = wire::MessageType;

// ---------------------------------------------------------------- handlers
// A handler is a member function of one of Requests::Parts, or a function whose first parameter is one. It takes the request, the payload
// and the caller; the last two may be left out. A payload that the handler does not take is not decoded.

template <class... Rest>
struct PayloadOf {
  using type = wire::Empty;
};
template <class Q, class... Rest>
struct PayloadOf<const Q&, Rest...> {
  using type = std::conditional_t<std::is_same_v<Q, Caller>, wire::Empty, Q>;
};

template <class P, class... Rest>
struct Takes {
  using Payload = typename PayloadOf<Rest...>::type;
  template <auto Handler>
  static void call(Requests& front, const Asked& asked, [[maybe_unused]] const Payload& payload) {
    [[maybe_unused]] const auto argument = [&]<class A>(std::type_identity<A>) -> A {
      if constexpr (std::is_same_v<A, const Caller&>) return asked.caller;
      else return payload;
    };
    std::invoke(Handler, front.part<P>(), asked.request, argument(std::type_identity<Rest>{})...);
  }
};
template <class P, class... Rest>
Takes<P, Rest...> takes(void (P::*)(const Request&, Rest...));
template <class P, class... Rest>
Takes<P, Rest...> takes(void (*)(P&, const Request&, Rest...));
template <auto Handler>
using TakesOf = decltype(takes(Handler));
template <auto Handler>
using Payload = typename TakesOf<Handler>::Payload;

template <class Q>
Result<Q> payload_of(const Asked& asked) {
  if constexpr (std::is_same_v<Q, wire::Empty>) return Q{};
  else return wire::decode<Q>(asked.message.payload);
}

template <auto Handler>
void handle(Requests& front, const Asked& asked, const Result<Payload<Handler>>& payload) {
  if (!payload) return front.refuse(asked.request, payload.error());
  if (front.refuse_role(asked)) return;
  TakesOf<Handler>::template call<Handler>(front, asked, *payload);
}

template <auto Handler>
void serve(Requests& front, const Asked& asked) {
  if (front.answers_now(asked, asked.verb.rule)) handle<Handler>(front, asked, payload_of<Payload<Handler>>(asked));
}

// For a payload that may name a job: where it does, `kOfJob` takes the place of the row's rule.
template <auto Handler, const Rule& kOfJob>
void serve_by_job(Requests& front, const Asked& asked) {
  const auto payload = payload_of<Payload<Handler>>(asked);
  if (front.answers_now(asked, payload && !payload->job.empty() ? kOfJob : asked.verb.rule)) handle<Handler>(front, asked, payload);
}

// ---------------------------------------------------------------- the table

using enum Needs;
using enum PassedOn;
using enum Judged;

constexpr Rule kOneJob{current_copy, "show job", to_coordinator};
constexpr Rule kShowJobs{current_copy, "show jobs", to_coordinator};
constexpr Rule kChangeMembers{nothing, "change who belongs to the cluster"};
constexpr Rule kNewHistory{nothing, "recover the quorum"};
constexpr Rule kDrain{current_copy, "drain or undrain host", to_coordinator};
constexpr Rule kOtherHosts{nothing, "", to_host};
constexpr Rule kPackages{nothing, "", between_agents};
constexpr Rule kCheckpoints{current_copy, "look for checkpoints", between_agents};

constexpr Verb kVerbs[] = {
    // ---- jobs
    {Type::submit, serve<&JobRequests::submit>, {current_copy, "submit job", to_coordinator}, Role::submit, by_row, Audit::entry},
    {Type::plan, serve<&JobRequests::plan>, {coordinator, "plan job", to_coordinator}, Role::submit},
    {Type::action, serve<&JobRequests::action>, {current_copy, "change job", to_coordinator}, Role::submit, by_handler, Audit::entry},
    // ---- views
    {Type::query_jobs, serve<&ViewRequests::jobs>, kShowJobs},
    {Type::query_tasks, serve<&ViewRequests::tasks>, kShowJobs},
    {Type::describe_job, serve<&ViewRequests::describe>, kShowJobs},
    {Type::query_task_specs, serve<&ViewRequests::task_specs>, kShowJobs},
    {Type::query_status, serve_by_job<&ViewRequests::status, kOneJob>},
    {Type::query_nodes, serve<&ViewRequests::nodes>},
    {Type::query_version, serve<&ViewRequests::version>},
    {Type::query_manifests, serve<&ViewRequests::manifests>},
    {Type::query_checkpoints, serve<&CheckpointQueries::checkpoints>, {current_copy, "show checkpoints", to_coordinator}},
    {Type::query_doctor, serve<&Checkups::begin>, kOtherHosts},
    // ---- streams
    {Type::watch, serve<&StreamRequests::watch>, kShowJobs},
    {Type::query_events, serve_by_job<&StreamRequests::events, kOneJob>, {no_old_copy, "show events"}},
    {Type::logs, serve<&StreamRequests::logs>, {current_copy, "read logs", to_host}},
    {Type::exec, serve<&StreamRequests::exec>, {current_copy, "run a command in a task", to_host}, Role::view, by_row, Audit::event},
    {Type::launch,
     serve<&StreamRequests::launch>,
     {current_copy, "launch a program in a task", to_host},
     Role::view,
     by_row,
     Audit::event,
     true},
    {Type::cancel_request, serve<&StreamRequests::cancel>, kOtherHosts},
    // ---- members
    {Type::leave, serve<&MemberRequests::leave>, kChangeMembers, Role::operate, by_row, Audit::event},
    {Type::form, serve<&MemberRequests::form>, kChangeMembers, Role::operate, by_row, Audit::event},
    {Type::recover_quorum, serve<&MemberRequests::recover_quorum>, kNewHistory, Role::operate, by_row, Audit::event},
    {Type::drain, serve<&MemberRequests::drain>, kDrain, Role::operate, by_handler, Audit::entry},
    // ---- packages and checkpoints. A package is stored where it was submitted, and spreads from there
    {Type::put_blob, serve<&PackageRequests::put>, {copy, "submit job"}, Role::submit, by_row, Audit::event},
    {Type::get_blob, serve<&PackageRequests::get>, kPackages},
    {Type::keep_blob, serve<&Packages::keep>, kPackages},
    {Type::ask_checkpoint, serve<&CheckpointRequests::asked>, kCheckpoints},
    {Type::get_checkpoint, serve<&CheckpointCopies::send>, kCheckpoints},
};

// ---------------------------------------------------------------- each type is one of these

// clang-format off
constexpr Type kReplies[] = {
    Type::error,     Type::ok,         Type::submitted,  Type::jobs,   Type::tasks,     Type::description,       Type::nodes,
    Type::status,    Type::events,     Type::task_specs, Type::update, Type::log_chunk, Type::exec_output,       Type::checkpoints,
    Type::blob,      Type::blob_chunk, Type::version,    Type::doctor, Type::recovery,  Type::checkpoint_answer, Type::checkpoint_files,
    Type::manifests,
};
// clang-format on
constexpr Type kOfTheAgent[] = {Type::has_blob, Type::exec_input};  // which answers its clients itself

constexpr bool each_has_one_place() {
  for (int number = 1; number <= static_cast<int>(enum_last(Type{})); ++number) {
    const auto type = static_cast<Type>(number);
    if (std::ranges::count(kVerbs, type, &Verb::type) + std::ranges::count(kReplies, type) + std::ranges::count(kOfTheAgent, type) != 1)
      return false;
  }
  return true;
}
static_assert(each_has_one_place(), "a type of message has no row in kVerbs and no place in kReplies, or two");

}  // namespace

const Verb* verb_of(Type type) {
  const Verb* row = std::ranges::find(kVerbs, type, &Verb::type);
  return row == std::end(kVerbs) ? nullptr : row;
}

}  // namespace dtrain::node
