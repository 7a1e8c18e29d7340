#include "format/fuzzing.hpp"
#include "format/npz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenscope;
  return fuzz_reader(data, size, "npz",
                     [](const Source& source, const LoadOptions& options) { return read_npz(source, options); });
}
