#include "kernels/hash_target.hpp"

#if defined(__x86_64__)
const tenscope::kernels::HashTarget tenscope::kernels::kHashAvx2{reset, update, digest, hash};
#endif
