#include "common/base/duration_text.h"

namespace dtrain {

std::string duration_text(Duration duration) {
  const auto ms = duration / 1ms;
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

}  // namespace dtrain
