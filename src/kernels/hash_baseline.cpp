#include "kernels/hash_target.hpp"

const tenscope::kernels::HashTarget tenscope::kernels::kHashBaseline{reset, update, digest, hash};
