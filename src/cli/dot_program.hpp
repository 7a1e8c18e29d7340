#pragma once

#include <filesystem>
#include <string>

namespace tenscope::cli {

// Has Graphviz's `dot` draw a graph into a file, as "svg" or "png". Throws NotFound where `dot` is not installed.
void draw_with_dot(const std::string& graph, const std::string& kind, const std::filesystem::path& file);

}  // namespace tenscope::cli
