#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tenscope/reader.hpp"

namespace tenscope::cli {

// Of events, a row each, as docs/frames.md has the columns.
bool is_table_format(const std::filesystem::path& path);  // .csv, .parquet, .arrow, .feather

// Throws Io.
void export_csv(std::shared_ptr<const Reader> reader, std::vector<EventId> events, const std::filesystem::path& out);

// Python writes the other formats, by pyarrow: `words` are those of `python -m tenscope.reading.table_file`. Returns
// the number of rows. Throws Unsupported, with what went wrong.
std::size_t export_by_python(const std::vector<std::string>& words);

}  // namespace tenscope::cli
