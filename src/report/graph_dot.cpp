#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "report/graph.hpp"
#include "report/html.hpp"
#include "report/values.hpp"

namespace tenscope::report {
namespace {

constexpr std::size_t kLongestName = 60;
constexpr std::size_t kLeavesAbreast = 6;  // more leaves than these below one module are staggered

constexpr std::string_view kPlain = "#eef2f7", kGrey = "#f5f5f5", kGreen = "#c8e6c9", kYellow = "#fff59d",
                           kPink = "#fbd9d3", kRed = "#ef9a9a", kBlue = "#bbdefb", kStrong = "#b71c1c";

// Text inside Graphviz's HTML-like labels.
std::string label_text(std::string_view text) { return escape_html(text, "<BR/>"); }

// Cut between characters, not inside one.
std::string shortened(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return std::string(text);
  std::size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…";
}

std::string shapes_text(const std::vector<std::vector<std::int64_t>>& shapes) {
  constexpr std::size_t kMost = 2;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, shapes.size()); ++i)
    text += (i > 0 ? ", " : "") + (shapes[i].empty() ? "scalar" : fmt::format("{}", fmt::join(shapes[i], "×")));
  return shapes.size() > kMost ? text + ", …" : text;
}

std::string edge_label(const ModuleFacts& callee) {
  const std::string in = shapes_text(callee.inputs), out = shapes_text(callee.outputs);
  if (in == out || out.empty()) return in;
  return in.empty() ? "→ " + out : in + "\n→ " + out;
}

std::string time_color(double share) {
  constexpr std::array<int, 3> kCold = {255, 253, 245}, kHot = {239, 108, 75};
  const double heat = std::sqrt(std::clamp(share, 0.0, 1.0));
  std::array<int, 3> mixed{};
  for (std::size_t i = 0; i < 3; ++i) mixed[i] = static_cast<int>(std::lround(kCold[i] + heat * (kHot[i] - kCold[i])));
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

class DotWriter {
 public:
  DotWriter(const Graph& graph, const DotOptions& options) : graph_(graph), options_(options) {
    for (const Graph::Node& node : graph.nodes) largest_own_ns_ = std::max(largest_own_ns_, node.facts.own_ns);
    has_children_.resize(graph.nodes.size());
    for (const GraphEdge& edge : graph.edges) has_children_[edge.from] = true;
  }

  std::string write() {
    out_ = "digraph tenscope {\n  rankdir=TB; ordering=out; nodesep=0.15; ranksep=0.35; bgcolor=white;\n";
    if (options_.width_inches && options_.height_inches)
      out_ += fmt::format("  size=\"{},{}\";\n", *options_.width_inches, *options_.height_inches);
    if (options_.dpi) out_ += fmt::format("  dpi={};\n", *options_.dpi);
    write_title();
    out_ +=
        "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11, color=\"#90a4ae\", "
        "margin=\"0.09,0.05\", height=0.3];\n"
        "  edge [fontname=\"Helvetica\", fontsize=8, color=\"#78909c\", fontcolor=\"#546e7a\", arrowsize=0.6];\n";
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) write_node(i);
    write_edges();
    return out_ + "}\n";
  }

 private:
  void write_title() {
    constexpr std::string_view kLeft = "<BR ALIGN=\"LEFT\"/>";
    std::string title;
    std::istringstream lines(options_.title);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) title += label_text(line) + std::string(kLeft);
    if (const std::string legend = legend_text(); !legend.empty()) title += legend + std::string(kLeft);
    if (!title.empty())
      out_ += fmt::format("  labelloc=t; labeljust=l; fontname=\"Helvetica\"; fontsize=12; label=<{}>;\n", title);
  }

  static std::string swatch(std::string_view color, std::string_view meaning) {
    return fmt::format("<FONT COLOR=\"{}\">■</FONT> {}   ", color, meaning);
  }

  std::string legend_text() const {
    switch (options_.color) {
      case GraphColor::Diff:
        return swatch("#e57373", "differs") + swatch("#f3b5aa", "differs later only") +
               swatch("#e6d200", "in bits only") + swatch("#81c784", "equal") + swatch("#64b5f6", "not in the other") +
               swatch("#cfd8dc", "not compared");
      case GraphColor::NaN:
        return swatch("#e57373", "NaN or Inf in an output") + swatch("#f3b5aa", "in a gradient, parameter or buffer") +
               swatch("#e6d200", "in an input only") + swatch("#81c784", "finite");
      case GraphColor::Time:
        return swatch("#ef6c4b", "the longest own time");
      case GraphColor::None:
        return "";
    }
    return "";
  }

  std::string fill_of(const ModuleFacts& facts) const {
    switch (options_.color) {
      case GraphColor::Diff:
        return std::string(
            std::array{kGrey, kGreen, kYellow, kPink, kRed, kBlue}[static_cast<std::size_t>(facts.diff)]);
      case GraphColor::NaN:
        return std::string(std::array{kGreen, kYellow, kPink, kRed}[static_cast<std::size_t>(facts.nonfinite)]);
      case GraphColor::Time:
        return time_color(largest_own_ns_ > 0 ? static_cast<double>(facts.own_ns) / static_cast<double>(largest_own_ns_)
                                              : 0);
      case GraphColor::None:
        break;
    }
    return std::string(kPlain);
  }

  static std::string small(const std::string& text, std::string_view color = "#546e7a") {
    return text.empty() ? "" : fmt::format("<BR/><FONT POINT-SIZE=\"9\" COLOR=\"{}\">{}</FONT>", color, text);
  }

  void write_node(std::size_t id) {
    const auto& [name, facts] = graph_.nodes[id];
    const std::string shown = label_text(shortened(name, kLongestName));
    std::string label = fmt::format("<B>{}</B>", shown.empty() ? " " : shown);
    if (!name.starts_with(facts.cls + " ×") && name != facts.cls)
      label += small(label_text(shortened(facts.cls, kLongestName)));
    if (options_.color == GraphColor::Time && facts.duration_ns > 0) {
      const std::string own = facts.own_ns < facts.duration_ns && has_children_[id]
                                  ? fmt::format(" (own {})", duration_text(facts.own_ns))
                                  : "";
      label += small(duration_text(facts.duration_ns) + own);
    }
    if (facts.hidden > 0) label += small(fmt::format("+ {} inside", facts.hidden));
    std::string more;
    if (!facts.mark.empty()) {
      label += small(fmt::format("<B>{}</B>", label_text(facts.mark)), kStrong);
      more = fmt::format(", color=\"{}\", penwidth=3", kStrong);
    }
    if (facts.calls == 0) more += ", style=\"rounded,filled,dashed\"";
    out_ += fmt::format("  n{} [label=<{}>, fillcolor=\"{}\", tooltip=\"{}\"{}];\n", id, label, fill_of(facts),
                        tooltip(facts), more);
  }

  static std::string tooltip(const ModuleFacts& facts) {
    std::string text = facts.paths.front().empty() ? facts.root : facts.paths.front();
    if (facts.paths.size() > 1) text += fmt::format(" … {}", facts.paths.back());
    std::string quoted;
    for (const char c : fmt::format("{}, {} call{}", shortened(text, 300), facts.calls, facts.calls == 1 ? "" : "s")) {
      if (c == '"' || c == '\\') quoted += '\\';
      if (c == '&')
        quoted += "&amp;";
      else
        quoted += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
    return quoted;
  }

  // Many leaves side by side would make the picture wide: they take turns on several levels.
  void write_edges() {
    std::vector<std::size_t> leaves(graph_.nodes.size()), seen(graph_.nodes.size());
    for (const GraphEdge& edge : graph_.edges) leaves[edge.from] += !has_children_[edge.to];
    for (const GraphEdge& edge : graph_.edges) {
      std::string attributes;
      std::string label = label_text(edge_label(graph_.nodes[edge.to].facts));
      if (edge.count > 1) label += fmt::format("{}× {}", label.empty() ? "" : "<BR/>", edge.count);
      if (!label.empty()) attributes = fmt::format("label=<{}>", label);
      const std::size_t levels = std::min<std::size_t>(8, 1 + (leaves[edge.from] - 1) / kLeavesAbreast);
      if (!has_children_[edge.to] && leaves[edge.from] > kLeavesAbreast) {
        const std::size_t level = seen[edge.from]++ % levels;
        if (level > 0) attributes += fmt::format("{}minlen={}", attributes.empty() ? "" : ", ", level + 1);
      }
      out_ += fmt::format("  n{} -> n{}{};\n", edge.from, edge.to,
                          attributes.empty() ? "" : fmt::format(" [{}]", attributes));
    }
  }

  const Graph& graph_;
  const DotOptions& options_;
  std::string out_;
  std::int64_t largest_own_ns_ = 0;
  std::vector<bool> has_children_;
};

void write_shapes(JsonWriter& json, const std::vector<std::vector<std::int64_t>>& shapes) {
  json.begin_array();
  for (const auto& shape : shapes) write_shape(json, shape);
  json.end_array();
}

}  // namespace

std::string graph_dot(const Graph& graph, const DotOptions& options) { return DotWriter(graph, options).write(); }

void write_graph(JsonWriter& json, const Graph& graph) {
  json.key("nodes").begin_array();
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    const auto& [name, facts] = graph.nodes[id];
    json.begin_object().key("id").number(static_cast<std::uint64_t>(id)).key("name").text(name);
    json.key("root").text(facts.root).key("class").text(facts.cls).key("paths").begin_array();
    for (const std::string& path : facts.paths) json.text(path);
    json.end_array().key("calls").number(facts.calls);
    json.key("duration_ns").number(facts.duration_ns).key("own_ns").number(facts.own_ns);
    json.key("inputs");
    write_shapes(json, facts.inputs);
    json.key("outputs");
    write_shapes(json, facts.outputs);
    json.key("nonfinite").text(to_string(facts.nonfinite)).key("diff").text(to_string(facts.diff));
    json.key("mark").text(facts.mark).key("hidden").number(static_cast<std::uint64_t>(facts.hidden)).end_object();
  }
  json.end_array().key("edges").begin_array();
  for (const GraphEdge& edge : graph.edges) {
    json.begin_object().key("from").number(static_cast<std::uint64_t>(edge.from));
    json.key("to").number(static_cast<std::uint64_t>(edge.to));
    json.key("count").number(static_cast<std::uint64_t>(edge.count)).end_object();
  }
  json.end_array();
}

}  // namespace tenscope::report
