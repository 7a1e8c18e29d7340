#include "format/fuzzing.hpp"
#include "format/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenscope;
  return fuzz_reader(data, size, "npy", [](const Source& source, const LoadOptions& options) {
    Budget budget(options, source.size());
    return Value(read_npy(source, budget));
  });
}
