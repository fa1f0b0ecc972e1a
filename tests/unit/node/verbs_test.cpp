// Who may ask what, and where: the rows of all verbs, which stand beside their handlers, in one table for whoever reviews a change of them.
#include "common/node/verbs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/node/access.h"

namespace dtrain::node {
namespace {

std::string needs(const Rule& rule) {
  static constexpr const char* kNames[] = {"nothing", "no old copy", "a copy", "a current copy", "to coordinate"};
  return kNames[static_cast<std::size_t>(rule.needs)];
}

std::string passed_on(const Rule& rule) {
  static constexpr const char* kNames[] = {"never", "to the coordinator", "to a host", "between agents only"};
  return kNames[static_cast<std::size_t>(rule.passed_on)];
}

std::string line(const char* name, const Verb& verb) {
  static constexpr const char* kAudits[] = {"", ", audited by an event", ", audited by its entry"};
  return std::string(name) + ": needs " + needs(verb.rule) + "; passed on " + passed_on(verb.rule) + "; " +
         std::string(to_string(verb.role)) + (verb.judged == Judged::by_handler ? " (judged by its handler)" : "") +
         kAudits[static_cast<std::size_t>(verb.audit)] + (verb.from_task ? ", also from inside a task" : "") +
         (*verb.rule.what != '\0' ? std::string("; could not ") + verb.rule.what : "") + "\n";
}

// After an intended change: run once with DTRAIN_UPDATE_GOLDEN=1, and say in the commit why these callers may ask.
TEST(Verbs, EachRowIsAsReviewed) {
  std::string rows;
#define LINE(name) rows += line(#name, verbs::name);
#define NO_LINE(name)
  DTRAIN_MESSAGE_TYPES(NO_LINE, LINE, NO_LINE)
#undef LINE
#undef NO_LINE
  const std::string path = std::string(DTRAIN_SOURCE_DIR) + "/tests/golden/node/verbs.txt";
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << rows;
  std::ostringstream reviewed;
  reviewed << std::ifstream(path).rdbuf();
  EXPECT_EQ(rows, reviewed.str());
}

TEST(Verbs, EachIsFoundByItsNumberAndNoReplyIs) {
#define FOUND(name) EXPECT_EQ(verb_of(wire::MessageType::name), &verbs::name) << #name;
#define NOT_FOUND(name) EXPECT_EQ(verb_of(wire::MessageType::name), nullptr) << #name;
  DTRAIN_MESSAGE_TYPES(NOT_FOUND, FOUND, NOT_FOUND)
#undef FOUND
#undef NOT_FOUND
  EXPECT_EQ(verb_of(wire::MessageType::none), nullptr);
  EXPECT_EQ(verb_of(static_cast<wire::MessageType>(255)), nullptr);
}

}  // namespace
}  // namespace dtrain::node
