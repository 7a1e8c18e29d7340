#include "kernels/simd_target.hpp"

#include <hwy/highway.h>

#include <atomic>
#include <cstdlib>

#include "kernels/hash.hpp"

namespace tenscope::kernels {
namespace {

struct Target {
  std::string_view name;
  std::int64_t bit;
};

constexpr Target kTargets[] = {
#if HWY_ARCH_X86
    {"avx512", HWY_AVX3},   {"avx2", HWY_AVX2}, {"sse4", HWY_SSE4}, {"ssse3", HWY_SSSE3},
#elif HWY_ARCH_ARM
    {"sve", HWY_SVE},
    {"neon", HWY_NEON},
#endif
    {"scalar", HWY_SCALAR},
};

std::int64_t supported() {
  static const std::int64_t targets = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_SCALAR;
  return targets;
}

std::atomic<const HashTarget*> current_hash{&kHashBaseline};
std::atomic<const Target*> current_target{nullptr};

void use(const Target& target) {
  hwy::GetChosenTarget().Update(target.bit);
  current_target = &target;
#if HWY_ARCH_X86
  current_hash = target.bit == HWY_AVX3 ? &kHashAvx512 : target.bit == HWY_AVX2 ? &kHashAvx2 : &kHashBaseline;
#endif
}

bool use_named(std::string_view name) {
  for (const auto& target : kTargets) {
    if ((supported() & target.bit) == 0 || (!name.empty() && name != target.name)) continue;
    use(target);
    return true;
  }
  return false;
}

}  // namespace

void ensure_simd_target() {
  static const bool once = [] {
    const char* wanted = std::getenv("TENSCOPE_SIMD");
    return (wanted != nullptr && use_named(wanted)) || use_named("");
  }();
  static_cast<void>(once);
}

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const auto& target : kTargets) {
    if ((supported() & target.bit) != 0) names.emplace_back(target.name);
  }
  return names;
}

std::string simd_target() {
  ensure_simd_target();
  return std::string(current_target.load()->name);
}

bool use_simd_target(std::string_view name) {
  ensure_simd_target();
  return use_named(name);
}

const HashTarget& hash_target() noexcept {
  ensure_simd_target();
  return *current_hash;
}

}  // namespace tenscope::kernels
