// Hostile bytes on the control socket: the first byte chooses what the rest is read as, a stream of frames or one
// payload type. Seeds: tests/fuzz/make_corpus.py.
#include <cstddef>
#include <cstdint>

#include "common/job/job_spec.h"
#include "tests/fuzz/round_trip.h"
#include "tests/unit/wire/samples.h"

namespace dtrain::test {
namespace {

// Fed in two pieces, cut where the first byte says.
void check_stream(std::string_view input) {
  wire::Deframer deframer;
  const std::size_t cut = input.empty() ? 0 : static_cast<unsigned char>(input.front()) % input.size();
  for (const auto piece : {input.substr(0, cut), input.substr(cut)}) {
    deframer.feed(piece);
    for (;;) {
      const auto message = deframer.next();
      if (!message) return;  // the stream is unusable from here on
      if (!*message) break;
      check_round_trip<wire::Message>(wire::encode(**message));
    }
  }
  CHECK(deframer.buffered() <= input.size());
}

struct Chosen {
  std::string_view input;
  unsigned choice;  // counts down
  template <class T>
  void operator()(const char*) {
    if (choice-- == 0) check_round_trip<T>(input);
  }
};

}  // namespace
}  // namespace dtrain::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  // 0: stream, 1: job spec, from 2: the types in their order.
  if (data[0] == 0) test::check_stream(input);
  if (data[0] == 1) test::check_round_trip<job::JobSpec>(input);
  if (data[0] >= 2) test::for_each_control_type(test::Chosen{input, data[0] - 2u});
  return 0;
}
