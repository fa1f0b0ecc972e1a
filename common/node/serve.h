// What the rows of verbs (verbs.h) are made of: serve<handler>, which decodes a request's payload, once, and calls the handler; and the
// rules that several verbs share. Included where rows are defined, beside their handlers.
#pragma once

#include <functional>
#include <type_traits>

#include "common/node/requests.h"
#include "common/node/verbs.h"

namespace dtrain::node {

inline constexpr Rule kOneJob{Needs::current_copy, "show job", PassedOn::to_coordinator};
inline constexpr Rule kShowJobs{Needs::current_copy, "show jobs", PassedOn::to_coordinator};
inline constexpr Rule kOtherHosts{Needs::nothing, "", PassedOn::to_host};
inline constexpr Rule kPackages{Needs::nothing, "", PassedOn::between_agents};
inline constexpr Rule kLookForCheckpoints{Needs::current_copy, "look for checkpoints", PassedOn::between_agents};

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
  if constexpr (requires(const Payload<Handler>& payload) { payload.job.empty(); }) {
    if (asked.verb.rule_of_job != nullptr) {  // which of the two rules holds is known only from the payload
      const auto payload = payload_of<Payload<Handler>>(asked);
      const bool of_job = payload && !payload->job.empty();
      if (front.answers_now(asked, of_job ? *asked.verb.rule_of_job : asked.verb.rule)) handle<Handler>(front, asked, payload);
      return;
    }
  }
  if (front.answers_now(asked, asked.verb.rule)) handle<Handler>(front, asked, payload_of<Payload<Handler>>(asked));
}

}  // namespace dtrain::node
