#pragma once

#include <simdjson.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/json_writer.hpp"
#include "tenscope/event.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::report {

// For people.
std::string bytes_text(std::uint64_t bytes);                        // "4.0 KB", "1.5 GB"
std::string shape_text(std::span<const std::int64_t> shape);        // "[2, 3]", "[]"
std::string number_text(double value);                              // six significant digits; "-" for NaN: no value
std::string extreme_text(const TensorRecord& tensor, bool of_max);  // min or max, exact for int64 and uint64
std::string value_text(const EventValue& value,
                       std::size_t longest = 60);     // one line: 1.5, 'text', None, float32[2, 3]
std::string time_text(std::int64_t time_ns);          // local time, to the second
std::string duration_text(std::int64_t duration_ns);  // "1.23 ms"

// A word as a shell reads it.
std::string shell_word(std::string_view text);

// A member of the object that a probe put beside an event, as text; empty where it is not there.
std::string meta_text(simdjson::dom::parser& parser, const std::string& meta, std::string_view key);

// For programs: members and values as docs/cli.md says.
void write_stats(JsonWriter& json, const TensorRecord& tensor);  // an object; what has no value is null
void write_shape(JsonWriter& json, std::span<const std::int64_t> shape);
void write_value(JsonWriter& json, const EventValue& value);  // as in the journal; a tensor by write_tensor
void write_tensor(JsonWriter& json, const TensorRecord& tensor);
void write_elements(JsonWriter& json, const TensorView& view);  // nested lists; a complex number is [real, imaginary]

}  // namespace tenscope::report
