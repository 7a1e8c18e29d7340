#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "store/event_encoder.hpp"
#include "tenscope/dtype.hpp"
#include "tenscope/sketch.hpp"

namespace tenscope::store {

// A sketch as a line of the journal has it (docs/format.md): base64 of the upper bytes of its sums, as many of each as
// the dtype's precision asks for, without the zeros at the end. All sums must be finite.
void put_sketch(TextBuffer& out, DType dtype, const Sketch& sketch);

// Null where the text is none of this dtype.
std::shared_ptr<const Sketch> parse_sketch(std::string_view text, DType dtype);

// How far a stored sum may be off, as a part of it.
double sketch_rounding(DType dtype) noexcept;

}  // namespace tenscope::store
