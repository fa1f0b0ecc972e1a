#include "tests/conformance/standby_suite.h"

namespace dtrain::conformance {
namespace {

std::unique_ptr<RunnerWorld> plain() { return std::make_unique<DirectWorld>(); }

std::unique_ptr<RunnerWorld> without_cgroups() {
  DirectWorld::Options options;
  options.cgroups = false;
  return std::make_unique<DirectWorld>(options);
}

std::unique_ptr<RunnerWorld> long_path() {
  DirectWorld::Options options;
  options.long_path = true;
  return std::make_unique<DirectWorld>(options);
}

INSTANTIATE_TEST_SUITE_P(Direct, RunnerSuite,
                         testing::Values(WorldFactory{"direct", plain}, WorldFactory{"without_cgroups", without_cgroups},
                                         WorldFactory{"long_path", long_path}),
                         world_name);
// Without cgroups there are none.
INSTANTIATE_TEST_SUITE_P(Direct, StandbySuite, testing::Values(WorldFactory{"direct", plain}, WorldFactory{"long_path", long_path}),
                         world_name);

}  // namespace
}  // namespace dtrain::conformance
