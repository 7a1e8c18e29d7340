#include "store/sources.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include "kernels/summarize.hpp"
#include "store/read_file.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

constexpr std::size_t kLongestSource = 64u << 20;
constexpr std::size_t kDigits = 32;

bool is_fingerprint(std::string_view text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::string fingerprint_of(const std::string& text) {
  const auto size = static_cast<std::int64_t>(text.size());
  return kernels::fingerprint({text.data(), DType::U8, {&size, 1}, {}, "cpu"}).hex();
}

}  // namespace

std::optional<SourceFile> parse_source(std::string_view meta) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(simdjson::padded_string(meta)).get(object) != simdjson::SUCCESS) return std::nullopt;
  const auto text = [&](std::string_view name) {
    std::string_view found;
    return object[name].get(found) == simdjson::SUCCESS ? std::string(found) : std::string();
  };
  const auto number = [&](std::string_view name) {
    std::uint64_t found = 0;
    return object[name].get(found) == simdjson::SUCCESS ? found : 0;
  };
  SourceFile source{.file = text("file"),
                    .path = text("path"),
                    .fingerprint = text("fp"),
                    .left_out = text("left_out"),
                    .size_bytes = number("bytes"),
                    .line_count = number("lines"),
                    .event = 0};
  if (source.file.empty() || (source.fingerprint.empty() && source.left_out.empty())) return std::nullopt;
  if (!source.fingerprint.empty() && !is_fingerprint(source.fingerprint)) return std::nullopt;
  return source;
}

std::string read_source(const std::filesystem::path& run, const Fetcher& fetcher, std::string_view fingerprint) {
  if (!is_fingerprint(fingerprint))
    throw Error(ErrorCode::NotFound, fmt::format("cannot read a source: it was not kept: {}", run.string()));
  const std::filesystem::path path = run / kSourcesFolder / fmt::format("{}.py", fingerprint);
  fetcher.whole(path);
  std::string text = read_text(path, kLongestSource);
  if (fingerprint_of(text) != fingerprint)
    throw Error(ErrorCode::Corrupt,
                fmt::format("cannot read a source: its text has changed: fingerprint {} instead of {}: {}",
                            fingerprint_of(text), fingerprint, path.string()));
  return text;
}

}  // namespace tenscope::store
