#include "compare/not_seen.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <string_view>
#include <vector>

#include "core/printable.hpp"

namespace tenscope::compare {

std::string not_seen_in_words(const std::string& meta) {
  constexpr std::size_t kListed = 3;
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  if (parser.parse(meta).get(document) != simdjson::SUCCESS) return meta;
  std::string_view reason;
  if (document["reason"].get(reason) != simdjson::SUCCESS) return meta;
  simdjson::dom::array modules;
  if (document["modules"].get(modules) != simdjson::SUCCESS) return std::string(reason);
  std::vector<std::string> names;
  std::size_t count = 0;
  for (const auto module : modules) {
    std::string_view name;
    if (count++ < kListed && module.get(name) == simdjson::SUCCESS)
      names.push_back(name.empty() ? "the model" : printable(name));
  }
  if (count > kListed) names.push_back(fmt::format("{} more", count - kListed));
  return fmt::format("{} ({})", reason, fmt::join(names, ", "));
}

}  // namespace tenscope::compare
