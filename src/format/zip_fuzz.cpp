#include "format/fuzzing.hpp"
#include "format/zip.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenscope;
  return fuzz_reader(data, size, "zip", [](const Source& source, const LoadOptions& options) {
    const ZipReader zip(source, options);
    Budget budget(options, source.size());
    Dict dict;
    for (auto& entry : zip.entries()) {
      const Source record = zip.open(entry, budget, ZipReader::Check::Always);
      dict.entries.emplace_back(entry.name, std::string(record.text(0, record.size(), "record")));
    }
    return Value(dict);
  });
}
