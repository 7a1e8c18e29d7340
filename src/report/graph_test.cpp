#include "report/graph.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "tenscope/error.hpp"

namespace tenscope::report {
namespace {

ModuleForest forest_of(const std::string& paths) {
  std::istringstream text(paths);
  return read_module_paths(text);
}

std::string drawn(const ModuleTreeNode& node) {
  std::string text = node.name;
  if (node.children.empty()) return text;
  text += "(";
  for (std::size_t i = 0; i < node.children.size(); ++i) text += (i > 0 ? " " : "") + drawn(*node.children[i]);
  return text + ")";
}

constexpr const char* kTwoLayers = "embed\nlayers.0.attn\nlayers.0.mlp\nlayers.1.attn\nlayers.1.mlp\nhead\n";

TEST(Graph, ModulesLieBelowTheOneThatHoldsThem) {
  const ModuleForest forest = forest_of(kTwoLayers);
  ASSERT_EQ(forest.size(), 1u);
  EXPECT_EQ(drawn(*forest[0]), "model(embed layers.0(attn mlp) layers.1(attn mlp) head)");
  EXPECT_EQ(count_nodes(forest), 9u);
}

TEST(Graph, FoldsLayersOfTheSameStructure) {
  ModuleForest forest = forest_of(kTwoLayers);
  fold_repeated(forest);
  EXPECT_EQ(drawn(*forest[0]), "model(embed layers × 2(attn mlp) head)");
  const ModuleFacts& attention = forest[0]->children[1]->children[0]->facts;
  EXPECT_EQ(attention.paths, (std::vector<std::string>{"layers.0.attn", "layers.1.attn"}));
  EXPECT_EQ(attention.calls, 2);
}

TEST(Graph, KeepsLayersApartThatDiffer) {
  ModuleForest forest = forest_of("a.0.x\na.1.x\na.2.y\na.3.x\nb\n");
  fold_repeated(forest);
  EXPECT_EQ(drawn(*forest[0]), "model(a.[0-1, 3] × 3(x) a.2(y) b)");
}

TEST(Graph, FoldsOnlyNumericNames) {
  ModuleForest forest = forest_of("left.x\nright.x\n");
  fold_repeated(forest);
  EXPECT_EQ(drawn(*forest[0]), "model(left(x) right(x))");
}

TEST(Graph, ADifferenceKeepsALayerApart) {
  ModuleForest forest = forest_of("l.0.x\nl.1.x\nl.2.x\nhead");
  RunDiff diff;
  diff.modules.push_back({.root = "model",
                          .module = "l.1.x",
                          .is_bit_equal = false,
                          .is_within_tolerance = false,
                          .step = 0,
                          .phase = "forward"});
  diff.modules.push_back({.root = "model", .module = "l.0.x"});
  diff.modules.push_back({.root = "model", .module = "l.2.x"});
  diff.modules.push_back({.root = "model", .module = "head", .is_bit_equal = false});
  DiffOrigin origin;
  origin.place.root = "model";
  origin.place.module = "l.1.x";
  origin.place.phase = "forward";
  diff.origins.push_back(origin);
  diff.first_divergence = origin;
  add_diff(forest, diff);
  fold_repeated(forest);
  EXPECT_EQ(drawn(*forest[0]), "model(l.[0, 2] × 2(x) l.1(x) head)");
  const ModuleFacts& wrong = forest[0]->children[1]->children[0]->facts;
  EXPECT_EQ(wrong.diff, DiffState::Differs);
  EXPECT_EQ(wrong.mark, "first divergence");
  EXPECT_EQ(forest[0]->children[0]->children[0]->facts.diff, DiffState::Equal);
  EXPECT_EQ(forest[0]->children[2]->facts.diff, DiffState::Bits);
}

TEST(Graph, PruningTellsWhatIsHiddenAndKeepsItsMark) {
  ModuleForest forest = forest_of(kTwoLayers);
  forest[0]->children[1]->children[1]->facts.mark = "first divergence";
  forest[0]->children[1]->children[1]->facts.nonfinite = NonFinite::Output;
  prune_to_depth(forest, 2);
  EXPECT_EQ(drawn(*forest[0]), "model(embed layers.0 layers.1 head)");
  const ModuleFacts& layer = forest[0]->children[1]->facts;
  EXPECT_EQ(layer.hidden, 2u);
  EXPECT_EQ(layer.mark, "first divergence");
  EXPECT_EQ(layer.nonfinite, NonFinite::Output);
  prune_to_depth(forest, 1);
  EXPECT_EQ(forest[0]->facts.hidden, 8u);
}

TEST(Graph, MergesByName) {
  const Graph graph = make_graph(forest_of("a.norm\na.fc\nb.norm\nb.fc\nc"), Merge::Name);
  ASSERT_EQ(graph.nodes.size(), 6u);  // model a norm fc b c
  EXPECT_EQ(graph.nodes[2].name, "norm × 2");
  EXPECT_EQ(graph.nodes[2].facts.paths, (std::vector<std::string>{"a.norm", "b.norm"}));
  EXPECT_EQ(graph.edges.size(), 7u);
}

TEST(Graph, MergesByClass) {
  ModuleForest forest = forest_of("a\nb\nc");
  for (const auto& child : forest[0]->children) child->facts.cls = "Linear";
  forest[0]->children[2]->facts.cls = "ReLU";
  forest[0]->children[0]->facts.inputs = forest[0]->children[1]->facts.inputs = {{2, 3}};
  forest[0]->children[0]->facts.outputs = {{2, 3}};
  forest[0]->children[1]->facts.outputs = {{2, 5}};
  const Graph graph = make_graph(forest, Merge::Class);
  ASSERT_EQ(graph.nodes.size(), 3u);
  EXPECT_EQ(graph.nodes[1].name, "Linear × 2");
  EXPECT_EQ(graph.nodes[1].facts.inputs.size(), 1u);
  EXPECT_TRUE(graph.nodes[1].facts.outputs.empty());  // they differ
  EXPECT_EQ(graph.edges[0].count, 2u);
  EXPECT_EQ(graph.edges[1].count, 1u);
}

TEST(Graph, DotEscapesWhatItsLanguageHasAMeaningFor) {
  ModuleForest forest = forest_of("a");
  forest[0]->name = "<B>\"q\" & \\n\x01";
  forest[0]->facts.cls = "line\nbreak";
  forest[0]->facts.paths = {"p\"\\"};
  const std::string dot = graph_dot(make_graph(forest), {.title = "<title>"});
  EXPECT_NE(dot.find("<B>&lt;B&gt;&quot;q&quot; &amp; \\n </B>"), dot.npos) << dot;
  EXPECT_NE(dot.find("line<BR/>break"), dot.npos);
  EXPECT_NE(dot.find("tooltip=\"p\\\"\\\\, "), dot.npos);
  EXPECT_NE(dot.find("label=<&lt;title&gt;<BR"), dot.npos);
}

TEST(Graph, ShapesStandOnTheEdges) {
  ModuleForest forest = forest_of("a\nb\nc");
  forest[0]->children[0]->facts.inputs = {{2, 3}};
  forest[0]->children[0]->facts.outputs = {{2, 5}};
  forest[0]->children[1]->facts.inputs = forest[0]->children[1]->facts.outputs = {{7}};
  const std::string dot = graph_dot(make_graph(forest));
  EXPECT_NE(dot.find("n0 -> n1 [label=<2×3<BR/>→ 2×5>];"), dot.npos) << dot;
  EXPECT_NE(dot.find("n0 -> n2 [label=<7>];"), dot.npos);
  EXPECT_NE(dot.find("n0 -> n3;"), dot.npos);
}

TEST(Graph, RefusesWhatIsNoTrace) {
  EXPECT_THROW(forest_of(std::string("\xff\xfe\n")), Error);
  EXPECT_THROW(forest_of(std::string(100000, '.')), Error);
  EXPECT_TRUE(forest_of("\n  \n").empty());
}

}  // namespace
}  // namespace tenscope::report
