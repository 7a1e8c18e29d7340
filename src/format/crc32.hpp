#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenscope {

// The CRC-32 of zip files, continued from that of the bytes before (0 at first).
std::uint32_t crc32_of(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;

}  // namespace tenscope
