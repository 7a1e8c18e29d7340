#pragma once

#include <cstdint>
#include <string_view>

#include "format/output_file.hpp"
#include "format/source.hpp"

namespace tenscope {

// What every fuzz target does with its reader: any input gives a value or an Error; every byte of a value can be read.
inline std::uint64_t read_all(const Value& value) {
  std::uint64_t sum = 0;
  if (auto* tensor = value.get_if<Tensor>()) {
    validate(tensor->view());
    const auto count = element_count(tensor->shape);
    if (count > 0 && count < (1 << 20)) {
      for_each_block(tensor->view(), [&](std::span<const std::byte> block) {
        for (const auto byte : block) sum += static_cast<std::uint64_t>(byte);
      });
    }
  }
  if (auto* text = value.get_if<std::string>()) sum += text->size();
  if (auto* items = value.items()) {
    for (auto& item : *items) sum += read_all(item);
  }
  if (auto* dict = value.get_if<Dict>()) {
    for (auto& [key, item] : dict->entries) sum += read_all(key) + read_all(item);
    if (dict->attributes) sum += read_all(*dict->attributes);
  }
  if (auto* object = value.get_if<Object>()) {
    if (object->args) sum += read_all(*object->args);
    if (object->state) sum += read_all(*object->state);
  }
  return sum;
}

template <class Read>
int fuzz_reader(const std::uint8_t* data, std::size_t size, std::string_view format, Read read) {
  const auto source = memory_source({reinterpret_cast<const char*>(data), size}, format);
  LoadOptions options;
  options.max_inflated_bytes = 16 << 20;
  try {
    volatile std::uint64_t sum = read_all(read(source, options));
    (void)sum;
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace tenscope
