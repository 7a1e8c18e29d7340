#pragma once

#include <cstdint>
#include <istream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_writer.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::report {

enum class DiffState : std::uint8_t { Unknown, Equal, Bits, Later, Differs, Alone };
enum class NonFinite : std::uint8_t { None, Input, Gradient, Output };

std::string_view to_string(DiffState state) noexcept;
std::string_view to_string(NonFinite where) noexcept;

// What is known of a module; of several, where they are folded or merged.
struct ModuleFacts {
  std::string root;                                        // label of the outermost module, "GPT#0"
  std::string cls;                                         // empty: unknown
  std::vector<std::string> paths;                          // below the root; of what is folded, all of them
  std::int64_t calls = 0;                                  // 0: never called itself, only a name on the way to others
  std::int64_t duration_ns = 0;                            // of all calls
  std::int64_t own_ns = 0;                                 // without that of the modules below
  std::vector<std::vector<std::int64_t>> inputs, outputs;  // shapes, at the first call
  NonFinite nonfinite = NonFinite::None;                   // where NaN or Inf was seen, the worst of it
  DiffState diff = DiffState::Unknown;
  std::string mark;        // "first divergence": what to say in the picture
  std::size_t hidden = 0;  // modules below that are not drawn
};

struct ModuleTreeNode {
  std::string name;  // below the module above: "attn", "blocks.3", "blocks × 12"
  ModuleFacts facts;
  std::vector<std::unique_ptr<ModuleTreeNode>> children;  // in the order of their first calls
};
using ModuleForest = std::vector<std::unique_ptr<ModuleTreeNode>>;  // the outermost modules

// The modules of a recording, as docs/trace.md lays it down; of one rank, or of all.
ModuleForest read_modules(const Reader& reader, std::optional<int> rank = {});

// A text with a module's path on each line, in the order of calls. Throws Corrupt.
ModuleForest read_module_paths(std::istream& text);

// Says of each module how it compares; `diff` has the run of the forest as its first.
void add_diff(ModuleForest& forest, const RunDiff& diff);

// Siblings with numeric names and the same structure become one: "blocks × 12". Modules that NaN or a difference tells
// apart stay apart; so do those of other shapes, unless `with_shapes` is false.
void fold_repeated(ModuleForest& forest, bool with_shapes = true);

// How many nodes would be left by fold_repeated with shapes.
std::size_t count_folded(const ModuleForest& forest);

// Leaves out what lies deeper than `depth`; the outermost modules have depth 1.
void prune_to_depth(ModuleForest& forest, std::size_t depth);

std::size_t count_nodes(const ModuleForest& forest);

struct GraphEdge {
  std::size_t from = 0, to = 0;
  std::size_t count = 1;  // calls of different modules that are drawn as this one
};

// What is drawn: modules, and which calls which.
struct Graph {
  struct Node {
    std::string name;
    ModuleFacts facts;
  };
  std::vector<Node> nodes;
  std::vector<GraphEdge> edges;
};

enum class Merge : std::uint8_t { None, Name, Class };

Graph make_graph(const ModuleForest& forest, Merge merge = Merge::None);

enum class GraphColor : std::uint8_t { None, NaN, Time, Diff };

struct DotOptions {
  GraphColor color = GraphColor::None;
  std::string title;
  std::optional<double> width_inches, height_inches;  // the picture is scaled down to fit
  std::optional<double> dpi;
};

// The graph in Graphviz's language.
std::string graph_dot(const Graph& graph, const DotOptions& options = {});

// The members "nodes" and "edges" of an open object, as docs/graph.md describes them.
void write_graph(JsonWriter& json, const Graph& graph);

}  // namespace tenscope::report
