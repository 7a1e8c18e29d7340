#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/look.hpp"

namespace tenscope::kernels {

// What a picture's colours are scaled by. min, max, abs and p999 are over the finite elements, NaN where there is none.
struct ValueScale {
  double min = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
  double abs = std::numeric_limits<double>::quiet_NaN();  // the largest magnitude
  // The least magnitude that at least 99.9 % of the elements do not exceed. Exact for up to kExactQuantile elements,
  // else to one part in 128.
  double p999 = std::numeric_limits<double>::quiet_NaN();
  std::int64_t nan = 0;
  std::int64_t pos_inf = 0;
  std::int64_t neg_inf = 0;
  std::int64_t zero = 0;
};

inline constexpr std::int64_t kExactQuantile = std::int64_t{1} << 20;

// Collects the scale of a look from its elements, each of which is added once, by any of `threads` workers, in any
// order. `look` must outlive it.
class ScaleCollector {
 public:
  ScaleCollector(const Look& look, int threads);

  // At most kCompareBlock values; `all_finite` where that is known of them.
  void add(int worker, const double* values, std::int64_t count, bool all_finite) noexcept;
  ValueScale finish();

 private:
  struct Worker {
    ValueScale scale;
    std::int64_t finite = 0;
    std::int64_t above = 0;            // the limit
    std::int64_t at_limit = 0;         // equal to it
    std::vector<double> largest;       // magnitudes above the limit, where they are kept
    std::vector<std::int64_t> counts;  // else how many have the same upper bits
  };

  ScaleCollector(const Look& look, int threads, double limit);
  double quantile(std::int64_t rank, double largest) const;

  const Look& look_;
  int threads_;
  const LookTable& table_;
  bool is_exact_;
  double limit_;  // magnitudes up to here need not be told apart
  std::vector<Worker> workers_;
};

ValueScale measure_scale(const Look& look, int threads = 0);

}  // namespace tenscope::kernels
