#include "agent/dtrainctl/failure.h"

#include <gtest/gtest.h>

namespace dtrain::ctl {

TEST(Failure, IsOneLineEach) {
  wire::ErrorItem of_file, other;
  of_file.file = "job.yaml";
  of_file.line = 3;
  of_file.path = "spec.roles";
  of_file.message = "is missing";
  other.message = "could not find job x";
  other.next = "dtrainctl jobs";
  Failure failure;
  failure.items = {of_file, other};
  EXPECT_EQ(failure_text(failure), "job.yaml:3: spec.roles: is missing\ndtrainctl: could not find job x; dtrainctl jobs\n");
}

// What others wrote, in a job file or as a name, is shown as it is but moves nothing and begins no line.
TEST(Failure, NothingInItMovesTheCursor) {
  wire::ErrorItem item;
  item.file = "a\033[2J";
  item.path = "spec\r";
  item.message = "could not find job x\ntime=2001 event=forged";
  item.next = "ask\xc2\x9b";
  Failure failure;
  failure.items = {item};
  EXPECT_EQ(failure_text(failure), "a?[2J: spec?: could not find job x?time=2001 event=forged; ask?\n");
}

}  // namespace dtrain::ctl
