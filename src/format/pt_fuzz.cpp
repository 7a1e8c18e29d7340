#include "format/fuzzing.hpp"
#include "format/pt.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenscope;
  return fuzz_reader(data, size, "pt",
                     [](const Source& source, const LoadOptions& options) { return read_pt(source, options); });
}
