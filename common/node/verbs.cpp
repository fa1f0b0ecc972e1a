#include "common/node/verbs.h"

#include <iterator>

namespace dtrain::node {
namespace {

#define DTRAIN_ROW(name) &verbs::name,
#define DTRAIN_NO_ROW(name) nullptr,
// In the order of the numbers, which begin with that of no message.
constexpr const Verb* kVerbs[] = {nullptr, DTRAIN_MESSAGE_TYPES(DTRAIN_NO_ROW, DTRAIN_ROW, DTRAIN_NO_ROW)};
#undef DTRAIN_ROW
#undef DTRAIN_NO_ROW

}  // namespace

const Verb* verb_of(wire::MessageType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < std::size(kVerbs) ? kVerbs[number] : nullptr;
}

}  // namespace dtrain::node
