#include "kernels/simd_target.hpp"

#include "kernels/hash.hpp"

namespace tenscope::kernels {

const HashTarget& hash_target() noexcept {
#if defined(__x86_64__)
  static const HashTarget& best = __builtin_cpu_supports("avx512f") ? kHashAvx512
                                  : __builtin_cpu_supports("avx2")  ? kHashAvx2
                                                                    : kHashBaseline;
  return best;
#else
  return kHashBaseline;
#endif
}

}  // namespace tenscope::kernels
