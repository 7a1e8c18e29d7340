#pragma once

#include <cstdint>
#include <string_view>

namespace tenscope {

// The CRC-32C (Castagnoli) of bytes, as TFRecord files have it.
std::uint32_t crc32c_of(std::string_view bytes) noexcept;

}  // namespace tenscope
