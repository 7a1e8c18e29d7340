#pragma once

#include "tenscope/reader.hpp"

namespace tenscope::compare {

// The largest number by which a loss of the run was multiplied for its backward, as torch's GradScaler does; 1: none
// was.
double loss_scale(const Reader& reader);

}  // namespace tenscope::compare
