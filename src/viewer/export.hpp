#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "viewer/viewer.hpp"

namespace tenscope::viewer {

struct ExportOptions {
  std::size_t most_bytes = std::size_t{3} << 20;  // of the answers, compressed; in the page they are a third larger
};

// One page that needs nothing else: the answer, the modules, and the tensors around the places that it names, as many
// as there is room for. What was left out is said in it. Waits until everything is worked out. Throws where that fails.
std::string export_page(Viewer& viewer, const ExportOptions& options = {});

// Writes that page to a file, all of it or nothing. Throws Io.
void write_page(Viewer& viewer, const std::filesystem::path& path);

}  // namespace tenscope::viewer
