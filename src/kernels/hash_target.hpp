// Included by each hash_*.cpp, which is compiled with the flags of its vector unit and names its table kHashTarget.
// Only xxHash may be included here: an inline function of another header could leave this unit's instructions in a
// shared symbol.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/hash.hpp"

namespace tenscope::kernels {
namespace {

static_assert(sizeof(XXH3_state_t) <= 640);

XXH3_state_t* state_of(std::byte* state) { return reinterpret_cast<XXH3_state_t*>(state); }
const XXH3_state_t* state_of(const std::byte* state) { return reinterpret_cast<const XXH3_state_t*>(state); }

Fingerprint to_fingerprint(XXH128_hash_t hash) {
  Fingerprint result;
  result.low = hash.low64;
  result.high = hash.high64;
  return result;
}

void reset(std::byte* state) { XXH3_128bits_reset(state_of(state)); }
void update(std::byte* state, const std::byte* bytes, std::size_t size) {
  XXH3_128bits_update(state_of(state), bytes, size);
}
Fingerprint digest(const std::byte* state) { return to_fingerprint(XXH3_128bits_digest(state_of(state))); }
Fingerprint hash(const std::byte* bytes, std::size_t size) { return to_fingerprint(XXH3_128bits(bytes, size)); }

}  // namespace
}  // namespace tenscope::kernels
