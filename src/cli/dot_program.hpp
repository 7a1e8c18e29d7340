#pragma once

#include <filesystem>
#include <string>

namespace tenscope::cli {

// Whether Graphviz lays the graph out, or finds a place for everything in it.
enum class DotLayout { Made, Given };

// Has Graphviz's `dot` draw a graph into a file, as "svg" or "png". Throws NotFound where `dot` is not installed.
void draw_with_dot(const std::string& graph, const std::string& kind, const std::filesystem::path& file,
                   DotLayout layout = DotLayout::Made);

}  // namespace tenscope::cli
