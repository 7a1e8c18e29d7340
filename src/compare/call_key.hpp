#pragma once

#include <cstddef>
#include <cstdint>

#include "compare/timeline.hpp"

namespace tenscope::compare {

inline std::size_t mix_hash(std::size_t seed, std::uint64_t value) noexcept {
  seed = (seed ^ value) * 0x9E3779B97F4A7C15ULL;
  return seed ^ (seed >> 29);
}

// One call of a module of the first run.
struct CallKey {
  int node = -1;
  std::int64_t call = 0;
  friend bool operator==(const CallKey&, const CallKey&) = default;
};

struct CallKeyHash {
  std::size_t operator()(const CallKey& key) const noexcept {
    return mix_hash(mix_hash(0, static_cast<std::uint64_t>(key.node)), static_cast<std::uint64_t>(key.call));
  }
};

// A parameter or buffer of a module of the first run.
struct ParameterKey {
  int node = -1;
  TextId name = 0;  // within its module
  friend bool operator==(const ParameterKey&, const ParameterKey&) = default;
};

struct ParameterKeyHash {
  std::size_t operator()(const ParameterKey& key) const noexcept {
    return mix_hash(mix_hash(0, static_cast<std::uint64_t>(key.node)), key.name);
  }
};

}  // namespace tenscope::compare
