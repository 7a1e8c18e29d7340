#include "format/fuzzing.hpp"
#include "format/gguf.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenscope;
  return fuzz_reader(data, size, "gguf",
                     [](const Source& source, const LoadOptions& options) { return read_gguf(source, options); });
}
