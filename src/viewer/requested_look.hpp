#pragma once

#include <string>

#include "kernels/look.hpp"
#include "viewer/picture.hpp"
#include "viewer/tensor_answers.hpp"

namespace tenscope::viewer {

// What `of` of a request asks for, "a" where it is absent. Throws InvalidArgument for any other word.
enum class Of { A, B, Difference, Relative, Ulps };
Of requested_of(const Parameters& parameters);

// `rtol` and `atol`; throws InvalidArgument for negative ones.
kernels::Tolerance requested_tolerance(const Parameters& parameters);

// The partner; throws NotFound where there is none, and InvalidArgument where its shape is another.
const TensorView& partner_of(const TensorPair& pair);

// The elements that a request asks for: of the whole tensors, or of what a picture shows of them.
kernels::Look requested_look(const TensorPair& pair, Of of);
kernels::Look requested_look(const TensorPair& pair, Of of, const Picture& picture);

}  // namespace tenscope::viewer
