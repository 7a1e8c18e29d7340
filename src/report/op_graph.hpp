#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_writer.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::report {

struct OpGraphOptions {
  std::string module;  // a glob over module paths; empty: all
  std::optional<std::int64_t> step;
  std::optional<int> rank;
};

// What flows where inside modules: operations, and the values that none of them has made.
struct OpGraph {
  struct Node {
    std::string name, args, module, phase, site, text, dtype;
    std::vector<std::int64_t> shape;
    EventId event = 0;
    bool is_input = false;
    bool has_bad = false;  // NaN or Inf
  };
  struct Edge {
    std::size_t from = 0, to = 0;
  };
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::int64_t step = 0;
};

// Of one rank and one step, the first that has operations unless the options say which. Empty where there are none.
OpGraph read_op_graph(const Reader& reader, const OpGraphOptions& options);

// In Graphviz's language; operations stand in a box for their module.
std::string op_graph_dot(const OpGraph& graph, const std::string& title);

// The members "nodes" and "edges" of an open object.
void write_op_graph(JsonWriter& json, const OpGraph& graph);

}  // namespace tenscope::report
