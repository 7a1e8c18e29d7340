#include "compare/settings.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <map>

namespace tenscope::compare {
namespace {

// "seeds.torch" -> "0", over all notes whose meta is an object; the first process that has a setting counts.
std::map<std::string, std::string> settings_of(const Timeline& timeline, const Interner& interner) {
  std::map<std::string, std::string> settings;
  simdjson::dom::parser parser;
  for (const Lane& lane : timeline.lanes)
    for (const Item& item : lane.items) {
      if (item.kind != EventKind::Note || item.phase != Phase::Init || item.text == 0) continue;
      simdjson::dom::object object;
      if (parser.parse(simdjson::padded_string(interner.text(item.text))).get(object) != simdjson::SUCCESS) continue;
      for (const auto& [key, value] : object)
        settings.try_emplace(fmt::format("{}.{}", interner.text(item.name), key), simdjson::minify(value));
    }
  return settings;
}

}  // namespace

std::vector<DiffSetting> compare_settings(const Timeline& a, const Timeline& b, const Interner& interner) {
  const auto settings_a = settings_of(a, interner), settings_b = settings_of(b, interner);
  std::vector<DiffSetting> differences;
  for (const auto& [name, value] : settings_a) {
    const auto other = settings_b.find(name);
    if (other != settings_b.end() && other->second != value) differences.push_back({name, value, other->second});
  }
  return differences;
}

}  // namespace tenscope::compare
