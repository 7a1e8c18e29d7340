#include "compare/evidence.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenscope::compare {

Evidence weigh(std::vector<double> values, double tolerance) {
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  std::sort(values.begin(), values.end());
  struct Group {
    double value, count;
  };
  std::vector<Group> groups;
  for (const double value : values) {
    if (!groups.empty() && value - groups.back().value <= tolerance)
      ++groups.back().count;
    else
      groups.push_back({value, 1});
  }
  Evidence evidence{.distinct = groups.size()};
  if (groups.size() < 2) return evidence;
  const auto total = static_cast<double>(values.size());
  constexpr std::size_t kNeighbours = 3;
  const std::size_t near = std::min(kNeighbours, groups.size() - 1);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t first = i >= near ? i - near : 0, last = std::min(i + near, groups.size() - 1);
    const double width = groups[last].value - groups[first].value;
    const double density = static_cast<double>(last - first + 1) / (total * width);
    const double chance = std::max(groups[i].count > 1 ? groups[i].count / total : 0, 2 * tolerance * density);
    const double bits = -std::log2(std::clamp(chance, 0x1p-16, 1.0));
    evidence.bits += bits;
    evidence.most = std::max(evidence.most, bits);
  }
  return evidence;
}

std::vector<std::int64_t> fixed_sample(std::int64_t count) {
  constexpr std::int64_t kSample = 512;
  std::vector<std::int64_t> sample;
  if (count <= kSample) {
    sample.resize(static_cast<std::size_t>(count));
    std::iota(sample.begin(), sample.end(), 0);
  } else {
    for (std::uint64_t i = 0; i < kSample; ++i)
      sample.push_back(static_cast<std::int64_t>(mix(i) % static_cast<std::uint64_t>(count)));
  }
  return sample;
}

bool is_integer_kind(DType dtype) { return kind_of(dtype) != DTypeKind::Float && kind_of(dtype) != DTypeKind::Complex; }

double relative_tolerance(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::F32:
      return 1e-6;
    case DType::F16:
      return 0x1p-10;
    case DType::BF16:
      return 0x1p-7;
    case DType::F8E4M3:
    case DType::F8E4M3Fnuz:
      return 0x1p-3;
    case DType::F8E5M2:
    case DType::F8E5M2Fnuz:
      return 0x1p-2;
    default:
      return 0;
  }
}

int precision_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 53;
    case DType::F32:
      return 24;
    case DType::F16:
      return 11;
    case DType::BF16:
      return 8;
    case DType::F8E4M3:
    case DType::F8E4M3Fnuz:
      return 4;
    case DType::F8E5M2:
    case DType::F8E5M2Fnuz:
      return 3;
    default:
      return 0;
  }
}

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace tenscope::compare
