#include "compare/noise_profile.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "compare/noise.hpp"
#include "compare/run_values.hpp"
#include "compare/tensor_source.hpp"
#include "compare/timeline.hpp"
#include "core/json_writer.hpp"
#include "store/read_file.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "tenscope noise profile";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kNumbersOfPlace = 6;  // step, call, rel_max, rel_l2, systematic, flipped
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string key_of(const NoisePlace& place) {
  return fmt::format("{}\n{}\n{}\n{}", place.rank, place.io, place.phase, place.name);
}

// JSON has no infinity.
void write_number(JsonWriter& json, double value) {
  if (std::isfinite(value))
    json.number(value);
  else
    json.null();
}

class ProfileReader {
 public:
  explicit ProfileReader(const fs::path& path) : path_(path) {}

  NoiseProfile read() {
    const simdjson::padded_string text(store::read_text(path_, kMostBytes));
    simdjson::dom::parser parser;
    simdjson::dom::object root;
    if (parser.parse(text).get(root) != simdjson::SUCCESS) fail("it is no JSON object");
    if (text_in(root, "format") != kFormat) fail("it is not one");
    if (integer_in(root, "version") != kVersion)
      throw Error(ErrorCode::Version,
                  fmt::format("cannot read a noise profile: it is of another version: {}", path_.string()));
    for (const simdjson::dom::element run : array_in(root, "runs")) add_run(object_of(run));
    for (const simdjson::dom::element place : array_in(root, "places")) add_place(object_of(place));
    return std::move(profile_);
  }

 private:
  using Object = simdjson::dom::object;

  [[noreturn]] void fail(std::string_view why) const {
    throw Error(ErrorCode::Corrupt, fmt::format("cannot read a noise profile: {}: {}", why, path_.string()));
  }
  template <class T, class Element>
  T get(const Element& element, std::string_view what) const {
    T value{};
    if (element.get(value) != simdjson::SUCCESS) fail(fmt::format("{} is missing, or of another type", what));
    return value;
  }
  Object object_of(simdjson::dom::element element) const { return get<Object>(element, "an object"); }
  std::string_view text_in(const Object& object, std::string_view key) const {
    return get<std::string_view>(object[key], key);
  }
  std::int64_t integer_in(const Object& object, std::string_view key) const {
    return get<std::int64_t>(object[key], key);
  }
  simdjson::dom::array array_in(const Object& object, std::string_view key) const {
    return get<simdjson::dom::array>(object[key], key);
  }

  void add_run(const Object& object) {
    NoiseRun run;
    for (const simdjson::dom::element change : array_in(object, "changes"))
      run.changes.emplace_back(get<std::string_view>(change, "a change"));
    run.compared = static_cast<std::size_t>(integer_in(object, "compared"));
    run.moved = static_cast<std::size_t>(integer_in(object, "moved"));
    run.missing = static_cast<std::size_t>(integer_in(object, "missing"));
    profile_.runs.push_back(std::move(run));
  }

  void add_place(const Object& object) {
    NoisePlace place{.rank = static_cast<int>(integer_in(object, "rank")),
                     .name = text_in(object, "name"),
                     .io = text_in(object, "io"),
                     .phase = text_in(object, "phase")};
    for (const simdjson::dom::element row : array_in(object, "at")) {
      const auto numbers = get<simdjson::dom::array>(row, "a row");
      if (numbers.size() != kNumbersOfPlace) fail("a row has another number of columns");
      place.step = get<std::int64_t>(numbers.at(0), "step");
      place.call = get<std::int64_t>(numbers.at(1), "call");
      profile_.add(place, {.rel_max = measure(numbers.at(2)),
                           .rel_l2 = measure(numbers.at(3)),
                           .systematic = measure(numbers.at(4)),
                           .flipped = measure(numbers.at(5))});
    }
  }

  double measure(const simdjson::simdjson_result<simdjson::dom::element>& element) const {
    if (element.is_null()) return kInfinity;
    const auto value = get<double>(element, "a measure");
    if (!(value >= 0)) fail("a measure is negative");
    return value;
  }

  const fs::path& path_;
  NoiseProfile profile_;
};

using Moment = std::tuple<TextId, Io, Phase, std::int64_t, std::int64_t>;

Moment moment_of(const Item& item) { return {item.name, item.io, item.phase, item.step, item.call}; }

bool is_measurable(const Item& item) {
  return (item.kind == EventKind::Value || item.kind == EventKind::Change) && (item.is_tensor() || item.is_number());
}

// One process of the first run and the same process of the second. Several values of one place are paired in their
// order.
void measure_lane(const Lane& lane, const Lane& again, RunValues& values, const Interner& interner, NoiseRun& run,
                  NoiseProfile& profile) {
  std::map<Moment, std::vector<const Item*>> partners;
  for (const Item& item : again.items)
    if (is_measurable(item)) partners[moment_of(item)].push_back(&item);
  std::map<Moment, std::size_t> used;
  for (const Item& item : lane.items) {
    if (!is_measurable(item)) continue;
    const auto found = partners.find(moment_of(item));
    const std::size_t at = found == partners.end() ? 0 : used[moment_of(item)]++;
    if (found == partners.end() || at >= found->second.size()) {
      ++run.missing;
      continue;
    }
    ++run.compared;
    const Item& partner = *found->second[at];
    PlaceNoise noise;
    if (!is_same_value(item, partner)) {
      ++run.moved;
      const bool is_exact_value = item.is_tensor() ? is_exact(item.dtype) : item.value != ValueKind::Float;
      noise.add(values.measure(item, partner), is_exact_value);
      const bool is_initial = item.io == Io::Param && item.phase == Phase::Init && item.step == 0;
      if (is_initial && !is_exact_value)
        run.initial_units = std::max(run.initial_units, noise.rel_l2 / unit_roundoff(item.dtype));
    }
    profile.add({.rank = lane.rank,
                 .name = interner.text(item.name),
                 .io = to_string(item.io),
                 .phase = to_string(item.phase),
                 .step = item.step,
                 .call = item.call},
                noise);
  }
}

}  // namespace

void PlaceNoise::add(const PairError& error, bool is_exact) {
  if (!error.is_comparable || error.has_other_finite) {
    add({.rel_max = kInfinity, .rel_l2 = kInfinity, .systematic = kInfinity, .flipped = 1});
    return;
  }
  const double part = error.count > 0 ? static_cast<double>(error.differing) / static_cast<double>(error.count) : 0;
  add({.rel_max = error.relative(),
       .rel_l2 = error.rel_l2,
       .systematic = error.rel_l2 * std::abs(error.correlation),
       .flipped = is_exact ? part : 0});
}

void PlaceNoise::add(const PlaceNoise& other) {
  rel_max = std::max(rel_max, other.rel_max);
  rel_l2 = std::max(rel_l2, other.rel_l2);
  systematic = std::max(systematic, other.systematic);
  flipped = std::max(flipped, other.flipped);
}

NoiseProfile NoiseProfile::read(const fs::path& path) { return ProfileReader(path).read(); }

void NoiseProfile::write(const fs::path& path) const {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("format").text(kFormat).key("version").number(kVersion).key("runs").begin_array();
  for (const NoiseRun& run : runs) {
    json.begin_object().key("changes").begin_array();
    for (const std::string& change : run.changes) json.text(change);
    json.end_array().key("compared").number(static_cast<std::uint64_t>(run.compared));
    json.key("moved").number(static_cast<std::uint64_t>(run.moved));
    json.key("missing").number(static_cast<std::uint64_t>(run.missing)).end_object();
  }
  json.end_array().key("places").begin_array();
  const NoisePlace* open = nullptr;
  NoisePlace last;
  each([&](const NoisePlace& place, const PlaceNoise& noise) {
    const auto identity = [](const NoisePlace& one) { return std::tie(one.rank, one.name, one.io, one.phase); };
    if (open == nullptr || identity(last) != identity(place)) {
      if (open != nullptr) json.end_array().end_object();
      json.begin_object().key("rank").number(place.rank).key("name").text(place.name);
      json.key("io").text(place.io).key("phase").text(place.phase).key("at").begin_array();
      last = place;
      open = &last;
    }
    json.begin_array().number(place.step).number(place.call);
    for (const double number : {noise.rel_max, noise.rel_l2, noise.systematic, noise.flipped})
      write_number(json, number);
    json.end_array();
  });
  if (open != nullptr) json.end_array().end_object();
  json.end_array().end_object();
  text += '\n';
  fs::path draft = path;
  draft += ".new";
  std::ofstream file(draft, std::ios::binary);
  file << text;
  file.close();
  std::error_code failed;
  if (file) fs::rename(draft, path, failed);
  if (file && !failed) return;
  fs::remove(draft, failed);
  throw Error(ErrorCode::Io, fmt::format("cannot write a noise profile: {}", path.string()));
}

void NoiseProfile::add(const NoisePlace& place, const PlaceNoise& noise) {
  std::vector<At>& all = places_[key_of(place)];
  const std::pair moment(place.step, place.call);
  auto at = all.end();
  if (!all.empty() && all.back().moment() >= moment) at = std::ranges::lower_bound(all, moment, {}, &At::moment);
  if (at == all.end() || at->moment() != moment) {
    at = all.insert(at, {place.step, place.call, {}});
    ++size_;
  }
  at->noise.add(noise);
}

void NoiseProfile::add(const NoiseProfile& other) {
  runs.insert(runs.end(), other.runs.begin(), other.runs.end());
  other.each([&](const NoisePlace& place, const PlaceNoise& noise) { add(place, noise); });
}

void NoiseProfile::each(const std::function<void(const NoisePlace&, const PlaceNoise&)>& visit) const {
  std::map<std::string_view, const std::vector<At>*> sorted;
  for (const auto& [key, all] : places_) sorted.emplace(key, &all);
  for (const auto& [key, all] : sorted) {
    const std::size_t io = key.find('\n') + 1, phase = key.find('\n', io) + 1, name = key.find('\n', phase) + 1;
    NoisePlace place{
        .name = key.substr(name), .io = key.substr(io, phase - io - 1), .phase = key.substr(phase, name - phase - 1)};
    std::from_chars(key.data(), key.data() + io - 1, place.rank);
    for (const At& at : *all) {
      place.step = at.step;
      place.call = at.call;
      visit(place, at.noise);
    }
  }
}

const PlaceNoise* NoiseProfile::find(const NoisePlace& place) const {
  const auto all = places_.find(key_of(place));
  if (all == places_.end()) return nullptr;
  const std::pair moment(place.step, place.call);
  const auto at = std::ranges::lower_bound(all->second, moment, {}, &At::moment);
  return at == all->second.end() || at->moment() != moment ? nullptr : &at->noise;
}

fs::path profile_path(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? path / NoiseProfile::kFileName : path;
}

void measure_noise(const fs::path& run, const fs::path& again, std::vector<std::string> changes,
                   NoiseProfile& profile) {
  const Reader reader(run), other(again);
  Interner interner;
  const Timeline a = read_timeline(reader, interner), b = read_timeline(other, interner);
  const ReaderSource source_a(reader), source_b(other);
  RunValues values(source_a, source_b, interner);
  NoiseRun& told = profile.runs.emplace_back();
  told.changes = std::move(changes);
  for (const Lane& lane : a.lanes) {
    const auto partner = std::ranges::find_if(b.lanes, [&](const Lane& candidate) {
      return candidate.rank == lane.rank && candidate.ordinal == lane.ordinal;
    });
    static const Lane kNoLane;
    measure_lane(lane, partner == b.lanes.end() ? kNoLane : *partner, values, interner, told, profile);
  }
}

}  // namespace tenscope::compare
