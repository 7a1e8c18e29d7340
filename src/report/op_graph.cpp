#include "report/op_graph.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "compare/operation.hpp"
#include "report/html.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::report {
namespace {

bool is_wanted(const Event& event, const OpGraphOptions& options) {
  return event.io == Io::Op && (options.module.empty() || matches_glob(event.scope, options.module) ||
                                matches_glob(event.scope, options.module + ".*"));
}

std::string label_of(const OpGraph::Node& node) {
  const auto small = [](const std::string& text) {
    return text.empty() ? "" : fmt::format("<BR/><FONT POINT-SIZE=\"9\">{}</FONT>", escape_html(text, "<BR/>"));
  };
  return fmt::format("<<B>{}</B>{}{}{}>", escape_html(node.name, "<BR/>"), small(node.args),
                     small(fmt::format("{}[{}]", node.dtype, fmt::join(node.shape, ", "))), small(node.site));
}

}  // namespace

OpGraph read_op_graph(const Reader& reader, const OpGraphOptions& options) {
  OpGraph graph;
  std::optional<std::int64_t> step = options.step;
  std::optional<std::size_t> writer;
  std::unordered_map<std::string, std::size_t> made_by;  // fingerprint to node
  std::set<std::pair<std::size_t, std::size_t>> drawn;
  for (EventId id = 0; id < reader.event_count(); ++id) {
    if (!reader.is_tensor(id) || (step && reader.step(id) != *step)) continue;
    if (options.rank && reader.writers()[reader.writer_index(id)].rank != *options.rank) continue;
    if (writer && reader.writer_index(id) != *writer) continue;
    const Event event = reader.event(id);
    if (!is_wanted(event, options)) continue;
    step = event.step;
    writer = reader.writer_index(id);
    compare::Operation operation = compare::read_operation(event);
    const auto& tensor = std::get<TensorRecord>(event.value);
    const std::size_t node = graph.nodes.size();
    graph.nodes.push_back({.name = std::move(operation.name),
                           .args = std::move(operation.args),
                           .module = event.scope,
                           .phase = std::string(event.phase_word()),
                           .site = event.site,
                           .text = std::move(operation.text),
                           .dtype = std::string(to_string(tensor.dtype)),
                           .shape = tensor.shape,
                           .event = id,
                           .is_input = operation.full_name.empty(),
                           .has_bad = tensor.stats.nan + tensor.stats.pos_inf + tensor.stats.neg_inf > 0});
    for (const std::string& input : operation.inputs) {
      const auto found = made_by.find(input);
      if (found != made_by.end() && drawn.emplace(found->second, node).second)
        graph.edges.push_back({found->second, node});
    }
    made_by[tensor.fingerprint.hex()] = node;
  }
  graph.step = step.value_or(0);
  return graph;
}

std::string op_graph_dot(const OpGraph& graph, const std::string& title) {
  std::string out =
      "digraph tenscope {\n  rankdir=TB; nodesep=0.2; ranksep=0.3; bgcolor=white; fontname=\"Helvetica\"; "
      "fontsize=11; labelloc=t; labeljust=l;\n"
      "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef2f7\", fontname=\"Helvetica\", fontsize=11, "
      "color=\"#90a4ae\", margin=\"0.09,0.05\", height=0.3];\n"
      "  edge [color=\"#78909c\", arrowsize=0.6];\n";
  out += fmt::format("  label=<{}<BR ALIGN=\"LEFT\"/>>;\n", escape_html(title, "<BR/>"));
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> boxes;  // by phase and module
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    boxes[{graph.nodes[i].phase, graph.nodes[i].module}].push_back(i);
  std::size_t count = 0;
  for (const auto& [box, members] : boxes) {
    const auto& [phase, module] = box;
    out += fmt::format("  subgraph cluster_{} {{\n    color=\"#b0bec5\"; label=<<B>{}</B> {}>;\n", count++,
                       escape_html(module.empty() ? "the program" : module, "<BR/>"), escape_html(phase, "<BR/>"));
    for (const std::size_t i : members) {
      const OpGraph::Node& node = graph.nodes[i];
      const std::string_view fill = node.has_bad ? "#ef9a9a" : node.is_input ? "#ffffff" : "#eef2f7";
      out += fmt::format("    n{} [label={}, fillcolor=\"{}\"{}, tooltip=\"{}\"];\n", i, label_of(node), fill,
                         node.is_input ? ", shape=ellipse" : "", escape_html(node.text, " "));
    }
    out += "  }\n";
  }
  for (const OpGraph::Edge& edge : graph.edges) out += fmt::format("  n{} -> n{};\n", edge.from, edge.to);
  return out + "}\n";
}

void write_op_graph(JsonWriter& json, const OpGraph& graph) {
  json.key("step").number(graph.step).key("nodes").begin_array();
  for (const OpGraph::Node& node : graph.nodes) {
    json.begin_object().key("op").text(node.name).key("args").text(node.args).key("module").text(node.module);
    json.key("phase").text(node.phase).key("site").text(node.site).key("text").text(node.text);
    json.key("dtype").text(node.dtype).key("shape").begin_array();
    for (const std::int64_t size : node.shape) json.number(size);
    json.end_array().key("is_input").boolean(node.is_input).key("has_bad").boolean(node.has_bad).end_object();
  }
  json.end_array().key("edges").begin_array();
  for (const OpGraph::Edge& edge : graph.edges)
    json.begin_array()
        .number(static_cast<std::uint64_t>(edge.from))
        .number(static_cast<std::uint64_t>(edge.to))
        .end_array();
  json.end_array();
}

}  // namespace tenscope::report
