#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compare/measure.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// How far the value of one place moves where a program runs again with nothing but other roundings. The largest of what
// was seen; infinite where a NaN came or went.
struct PlaceNoise {
  double rel_max = 0;     // largest |b - a| as a part of the largest |a|
  double rel_l2 = 0;      // |b - a| / |a|, Euclidean
  double systematic = 0;  // the part of it that goes with the values themselves: |b - a| / |a| * |cosine|
  double flipped = 0;     // of integers and bools: which part of the elements was another one

  void add(const PairError& error, bool is_exact);
  void add(const PlaceNoise& other);
};

// Where a value was recorded.
struct NoisePlace {
  int rank = 0;
  std::string_view name;
  std::string_view io, phase;
  std::int64_t step = 0, call = 0;
};

// How a program was run again for a profile.
struct NoiseRun {
  std::vector<std::string> changes;  // "parameters and inputs moved by half a unit", "1 thread"
  std::size_t compared = 0;          // values that it has in common with the first run
  std::size_t moved = 0;             // of these, how many are not the same bit for bit
  std::size_t missing = 0;           // values of the first run that it does not have
  double initial_units = 0;          // how far initial parameters moved, Euclidean, in units of roundoff
};

// What was measured of all places of a program. docs/noise.md has the file.
class NoiseProfile {
 public:
  static constexpr std::string_view kFileName = "noise.json";  // in the folder of the run that it was measured for

  // Throws Error where the file cannot be read, or is no profile.
  static NoiseProfile read(const std::filesystem::path& path);
  void write(const std::filesystem::path& path) const;

  void add(const NoisePlace& place, const PlaceNoise& noise);
  void add(const NoiseProfile& other);
  // Calls visit(place, noise) for all of them, sorted by rank, role, phase, name and moment.
  void each(const std::function<void(const NoisePlace&, const PlaceNoise&)>& visit) const;
  // Nothing where the place was not measured. Valid until the profile changes.
  const PlaceNoise* find(const NoisePlace& place) const;
  std::size_t size() const noexcept { return size_; }

  std::vector<NoiseRun> runs;

 private:
  struct At {
    std::int64_t step = 0, call = 0;
    PlaceNoise noise;
    auto moment() const { return std::pair(step, call); }
  };
  std::unordered_map<std::string, std::vector<At>> places_;  // by rank, role, phase and name; sorted by moment
  std::size_t size_ = 0;
};

// The profile that a path stands for: a file, or the folder of a run that has one.
std::filesystem::path profile_path(const std::filesystem::path& path);

// Compares a run with the same program run again, value by value, and adds to the profile how far each place moved. The
// two must have been recorded alike. `changes` says what was changed. Throws Error where a run cannot be read.
void measure_noise(const std::filesystem::path& run, const std::filesystem::path& again,
                   std::vector<std::string> changes, NoiseProfile& profile);

}  // namespace tenscope::compare
