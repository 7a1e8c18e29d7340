#include "report/graph.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/commands.hpp"
#include "cli/dot_program.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "report/op_graph.hpp"
#include "report/run_diff.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;
using namespace report;

constexpr std::size_t kReadable = 150;  // nodes; more are pruned unless --depth is given
constexpr std::size_t kMostOperations = 2000;

struct Options {
  std::string source, out, color, against, merge, size;
  std::vector<std::string> map;
  std::optional<std::size_t> depth;
  std::optional<int> rank;
  std::optional<double> dpi;
  std::optional<std::string> ops;  // the module whose operations are drawn; empty: of all
  std::optional<std::int64_t> step;
  bool no_fold = false;
};

GraphColor color_of(const Options& options) {
  if (options.color == "nan") return GraphColor::NaN;
  if (options.color == "time") return GraphColor::Time;
  if (options.color == "diff" || (options.color.empty() && !options.against.empty())) return GraphColor::Diff;
  return GraphColor::None;
}

void set_size(const std::string& text, DotOptions& dot) {
  if (text.empty()) return;
  double width = 0, height = 0;
  const char* end = text.data() + text.size();
  const auto [comma, bad_width] = std::from_chars(text.data(), end, width);
  if (bad_width == std::errc() && comma != end && *comma == ',') {
    const auto [rest, bad_height] = std::from_chars(comma + 1, end, height);
    if (bad_height == std::errc() && rest == end && width > 0 && height > 0 && width < 1e5 && height < 1e5) {
      dot.width_inches = width;
      dot.height_inches = height;
      return;
    }
  }
  throw Error(ErrorCode::InvalidArgument, fmt::format("cannot use the size '{}': it must be W,H in inches", text));
}

// What a file's ending asks for. Throws InvalidArgument.
std::string kind_of_file(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  for (const char* known : {".svg", ".png", ".dot", ".json"})
    if (ending == known) return ending.substr(1);
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("cannot write the graph: the name must end in .svg, .png, .dot or .json: {}", path));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text).flush()) throw Error(ErrorCode::Io, fmt::format("cannot write the graph: {}", path));
}

// Operations instead of modules (docs/zoom.md).
int draw_operations(const Options& options, const Output& output) {
  const Reader reader = open_run(options.source);
  const std::string module = *options.ops == "*" ? "" : *options.ops;
  const OpGraph graph = read_op_graph(reader, {.module = module, .step = options.step, .rank = options.rank});
  if (graph.nodes.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("there are no such operations to draw; tenscope run --ops records them: {}",
                            reader.path().string()));
  const std::string kind = options.out.empty() ? "" : kind_of_file(options.out);
  if (kind != "json" && !kind.empty() && graph.nodes.size() > kMostOperations)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{} operations are too many to draw (the most is {}): --ops MODULE draws those of one",
                            graph.nodes.size(), kMostOperations));
  const std::string title = fmt::format("{}, step {}", reader.path().string(), graph.step);
  std::string document;
  JsonWriter json(document);
  json.begin_object().key("source").text(options.source);
  write_op_graph(json, graph);
  json.end_object();
  document += '\n';
  if (kind == "json")
    write_file(options.out, document);
  else if (kind == "dot")
    write_file(options.out, op_graph_dot(graph, title));
  else if (!kind.empty())
    draw_with_dot(op_graph_dot(graph, title), kind, options.out);
  if (output.json)
    print_text(document);
  else
    print("{}: {} operations and inputs, {} edges\n", options.out, graph.nodes.size(), graph.edges.size());
  return kFine;
}

class GraphCommand {
 public:
  explicit GraphCommand(const Options& options) : options_(options), color_(color_of(options)) {}

  int run(const Output& output) {
    if (options_.out.empty() && !output.json)
      throw Error(ErrorCode::InvalidArgument, "graph needs a file to write: -o graph.svg, .png, .dot or .json");
    if (color_ == GraphColor::Diff && options_.against.empty())
      throw Error(ErrorCode::InvalidArgument, "--color diff needs a second run: --against RUN");
    const std::string kind = options_.out.empty() ? "" : kind_of_file(options_.out);
    set_size(options_.size, dot_);
    ModuleForest forest = read();
    if (forest.empty())
      throw Error(ErrorCode::NotFound,
                  fmt::format("there are no module calls to draw; tenscope run and tenscope.trace record them: {}",
                              options_.source));
    is_progress_shown_ = output.progress;
    if (!options_.against.empty()) compare(forest);
    merge_ = options_.merge == "name" ? Merge::Name : options_.merge == "class" ? Merge::Class : Merge::None;
    fold(forest);
    prune(forest);
    write(make_graph(forest, merge_), kind, output);
    return kFine;
  }

 private:
  ModuleForest read() {
    const fs::path path = find_run(options_.source);
    dot_.title = path.string();
    if (!fs::is_directory(path)) {
      if (color_ != GraphColor::None)
        throw Error(ErrorCode::InvalidArgument, "a text of module paths has nothing to colour by: --color needs a run");
      std::ifstream text(path);
      if (!text) throw Error(ErrorCode::Io, fmt::format("cannot read the trace: {}", path.string()));
      return read_module_paths(text);
    }
    const Reader reader(path);
    warn_of_problems(reader);
    dot_.title = reader.path().string();
    return read_modules(reader, options_.rank);
  }

  void compare(ModuleForest& forest) {
    Progress progress(is_progress_shown_, "comparing");
    const RunDiff diff =
        diff_runs(find_run(options_.source), find_run(options_.against),
                  {.map = options_.map, .tolerance = {}, .on_progress = [&](double done) { progress.show(done); }});
    add_diff(forest, diff);
    answer_ = run_diff_answer(diff);
    dot_.title += fmt::format(", coloured by how {} differs from it\n{}", diff.b, answer_);
  }

  bool is_readable(const ModuleForest& forest) const { return make_graph(forest, merge_).nodes.size() <= kReadable; }

  void fold(ModuleForest& forest) const {
    if (options_.no_fold) return;
    const bool is_small = options_.depth || merge_ != Merge::None || count_folded(forest) <= kReadable;
    fold_repeated(forest, is_small);
  }

  void prune(ModuleForest& forest) const {
    if (options_.depth) {
      if (*options_.depth > 0) prune_to_depth(forest, *options_.depth);
      return;
    }
    const std::size_t all = count_nodes(forest);
    std::size_t depth = deepest(forest);
    while (depth > 2 && !is_readable(forest)) prune_to_depth(forest, --depth);
    if (count_nodes(forest) < all)
      warn("{} nodes are too many to read: drawn to depth {}; --depth 0 draws all", all, depth);
  }

  static std::size_t deepest(const ModuleForest& forest) {
    std::size_t depth = 0;
    for (const auto& node : forest) depth = std::max(depth, 1 + deepest(node->children));
    return depth;
  }

  std::string document(const Graph& graph) const {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("source").text(options_.source).key("file");
    options_.out.empty() ? json.null() : json.text(options_.out);
    json.key("against");
    options_.against.empty() ? json.null() : json.text(options_.against);
    json.key("answer");
    options_.against.empty() ? json.null() : json.text(answer_);
    write_graph(json, graph);
    json.end_object();
    return text + "\n";
  }

  void write(const Graph& graph, const std::string& kind, const Output& output) {
    dot_.color = color_;
    dot_.dpi = options_.dpi;
    if (kind == "json")
      write_file(options_.out, document(graph));
    else if (kind == "dot")
      write_file(options_.out, graph_dot(graph, dot_));
    else if (!kind.empty())
      draw_with_dot(graph_dot(graph, dot_), kind, options_.out);
    if (output.json)
      print_text(document(graph));
    else
      print("{}: {} nodes, {} edges\n", options_.out, graph.nodes.size(), graph.edges.size());
  }

  const Options& options_;
  GraphColor color_;
  bool is_progress_shown_ = false;
  DotOptions dot_;
  Merge merge_ = Merge::None;
  std::string answer_;
};

}  // namespace

Action prepare_graph(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("run", options->source, "A run, or a text file with a module's path on each line")->required();
  app.add_option("-o,--out", options->out, "The file to write: .svg, .png (both need Graphviz's dot), .dot or .json");
  app.add_option("--color", options->color, "Colour modules by NaN and Inf, by own time, or by difference")
      ->check(CLI::IsMember({"nan", "time", "diff"}));
  app.add_option("--against", options->against,
                 "A second run: colour by how it differs from the first, which is the reference");
  app.add_option("--map", options->map,
                 "Modules of the first that have another name in the second run, 'blocks.*=layers.*'")
      ->take_all()
      ->expected(1);
  app.add_option("--depth", options->depth, "Draw modules down to this depth; 0: all of them");
  app.add_option("--merge", options->merge, "Draw modules of one name or class as one")
      ->check(CLI::IsMember({"name", "class"}));
  app.add_option("--ops", options->ops, "Draw the operations inside this module instead ('*': all that were recorded)");
  app.add_option("--step", options->step, "With --ops: of this step, not of the first that has any");
  app.add_flag("--no-fold", options->no_fold, "Draw repeated layers one by one");
  app.add_option("--rank", options->rank, "Only what this rank recorded");
  app.add_option("--size", options->size, "Largest size of the picture in inches, W,H");
  app.add_option("--dpi", options->dpi, "Dots per inch of a .png")->check(CLI::Range(1.0, 2400.0));
  return [options](const Output& output) {
    if (options->ops && options->out.empty() && !output.json)
      throw Error(ErrorCode::InvalidArgument, "graph needs a file to write: -o graph.svg, .png, .dot or .json");
    return options->ops ? draw_operations(*options, output) : GraphCommand(*options).run(output);
  };
}

}  // namespace tenscope::cli
