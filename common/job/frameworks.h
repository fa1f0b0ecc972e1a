// The table of frameworks, one line each. A new one needs a file framework_NAME.cpp with its rules, and here its
// number, its declaration and its line: docs/adding.md. framework.h declares the rules.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dtrain::job {

// The numbers are stored and sent: a new one comes last.
enum class Framework : unsigned char { tensorflow, pytorch, mpi, horovod, mxnet, xgboost, paddle, jax, generic, lightgbm };
inline constexpr Framework kFrameworkUnlessSaid = Framework::generic;

struct FrameworkRules;
extern const FrameworkRules kTensorflow, kPytorch, kMpi, kMxnet, kXgboost, kPaddle, kJax, kGeneric, kLightgbm;
extern const FrameworkRules kPlannedOfRanks;  // known by name, refused until they are supported

struct FrameworkLine {
  Framework framework;
  std::string_view name;  // in job files
  const FrameworkRules* rules;
};

// In the order of the numbers.
inline constexpr std::array kFrameworks{
    FrameworkLine{Framework::tensorflow, "tensorflow", &kTensorflow},
    FrameworkLine{Framework::pytorch, "pytorch", &kPytorch},
    FrameworkLine{Framework::mpi, "mpi", &kMpi},
    FrameworkLine{Framework::horovod, "horovod", &kPlannedOfRanks},
    FrameworkLine{Framework::mxnet, "mxnet", &kMxnet},
    FrameworkLine{Framework::xgboost, "xgboost", &kXgboost},
    FrameworkLine{Framework::paddle, "paddle", &kPaddle},
    FrameworkLine{Framework::jax, "jax", &kJax},
    FrameworkLine{Framework::generic, "generic", &kGeneric},
    FrameworkLine{Framework::lightgbm, "lightgbm", &kLightgbm},
};
constexpr Framework enum_last(Framework) { return kFrameworks.back().framework; }
// Before that its jobs were refused.
constexpr std::uint32_t since_version(Framework framework) {
  return framework == Framework::tensorflow || framework == Framework::generic ? 1 : 3;
}

}  // namespace dtrain::job
