#include "format/fuzzing.hpp"
#include "format/pickle.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenscope;
  return fuzz_reader(data, size, "pickle",
                     [](const Source& source, const LoadOptions& options) { return read_pickle(source, options); });
}
