#include "compare/settings.hpp"

#include <fmt/format.h>
#include <simdjson.h>

namespace tenscope::compare {

// Over all notes of the beginning whose meta is an object; the first process that has a setting counts.
Settings settings_of(const Timeline& timeline, const Interner& interner) {
  Settings settings;
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

std::vector<DiffSetting> compare_settings(const Settings& a, const Settings& b) {
  std::vector<DiffSetting> differences;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other != b.end() && other->second != value) differences.push_back({name, value, other->second});
  }
  return differences;
}

}  // namespace tenscope::compare
