#pragma once

#include <filesystem>
#include <span>

#include "format/hdf5/hdf5_writer.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::cli {

// One dataset per name, one row per event: tensors, numbers, truth values (as 0 and 1) and text.
void export_hdf5(const Reader& reader, std::span<const EventId> events, const std::filesystem::path& out,
                 Hdf5Options options);

}  // namespace tenscope::cli
