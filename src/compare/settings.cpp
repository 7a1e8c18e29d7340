#include "compare/settings.hpp"

#include <fmt/format.h>
#include <simdjson.h>

namespace tenscope::compare {

namespace {

constexpr std::string_view kLayout = "layout", kOfOneRank = "layout.coordinates";

// Over all notes of the beginning whose meta is an object. The first that has a setting counts; of the layout the last,
// which is noted again when more is known of it.
Settings settings_of(const Lane& lane, const Interner& interner) {
  Settings settings;
  simdjson::dom::parser parser;
  for (const Item& item : lane.items) {
    if (item.kind != EventKind::Note || item.phase != Phase::Init || item.text == 0) continue;
    simdjson::dom::object object;
    if (parser.parse(simdjson::padded_string(interner.text(item.text))).get(object) != simdjson::SUCCESS) continue;
    const std::string_view note = interner.text(item.name);
    for (const auto& [key, value] : object) {
      const auto [setting, is_new] = settings.try_emplace(fmt::format("{}.{}", note, key), simdjson::minify(value));
      if (!is_new && note == kLayout) setting->second = simdjson::minify(value);
    }
  }
  return settings;
}

}  // namespace

// The first process that has a setting counts.
Settings settings_of(const Timeline& timeline, const Interner& interner) {
  Settings settings;
  for (const Lane& lane : timeline.lanes) settings.merge(settings_of(lane, interner));
  settings.erase(std::string(kOfOneRank));
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
