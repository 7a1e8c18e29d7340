// Overview. A forest of modules is read from a run or a text, by their paths: a module lies below the nearest one whose
// path begins its own. A ModuleList is never called and would only be in the way: its members are named "blocks.0" and
// lie below the module that holds it. Folding and pruning work on the forest; merging makes a graph of it.
#include "report/graph.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "tenscope/error.hpp"

namespace tenscope::report {
namespace {

constexpr std::size_t kDeepestPath = 200;
constexpr std::size_t kLongestPath = 10000;

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string_view last_part(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(dot + 1);
}

// "blocks.3" without the number: what its like are called.
std::string_view family_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == name.npos ? std::string_view() : name.substr(0, dot);
}

void raise(NonFinite& state, NonFinite to) { state = std::max(state, to); }

class ForestBuilder {
 public:
  ModuleTreeNode& node(std::string_view root, std::string_view path) {
    std::string key = fmt::format("{}\n{}", root, path);
    if (const auto found = nodes_.find(key); found != nodes_.end()) return *found->second;
    if (path.size() > kLongestPath || std::count(path.begin(), path.end(), '.') >= static_cast<long>(kDeepestPath))
      throw Error(ErrorCode::Corrupt,
                  fmt::format("a module's path is too long or too deep: {}...", path.substr(0, 60)));
    auto made = std::make_unique<ModuleTreeNode>();
    made->facts.root = root;
    made->facts.paths.emplace_back(path);
    made->name = path.empty() ? std::string(root) : std::string(last_part(path));
    ModuleTreeNode& result = *made;
    if (path.empty()) {
      forest_.push_back(std::move(made));
    } else {
      const std::size_t dot = path.rfind('.');
      node(root, dot == path.npos ? std::string_view() : path.substr(0, dot)).children.push_back(std::move(made));
    }
    nodes_.emplace(std::move(key), &result);
    return result;
  }

  ModuleForest finish() {
    ModuleForest result;
    for (auto& root : forest_) {
      dissolve_lists(*root);
      add_own_times(*root);
      const bool is_needless = root->facts.calls == 0 && root->children.size() == 1;
      result.push_back(std::move(is_needless ? root->children.front() : root));
    }
    return result;
  }

 private:
  static bool is_list(const ModuleTreeNode& node) {
    return node.facts.calls == 0 && !node.children.empty() &&
           std::all_of(node.children.begin(), node.children.end(), [](const auto& c) { return is_number(c->name); });
  }

  static void dissolve_lists(ModuleTreeNode& node) {
    std::vector<std::unique_ptr<ModuleTreeNode>> children;
    for (auto& child : node.children) {
      const bool is_dissolved = is_list(*child);
      dissolve_lists(*child);
      if (!is_dissolved) {
        children.push_back(std::move(child));
        continue;
      }
      for (auto& member : child->children) {
        member->name = fmt::format("{}.{}", child->name, member->name);
        children.push_back(std::move(member));
      }
    }
    node.children = std::move(children);
  }

  static void add_own_times(ModuleTreeNode& node) {
    ModuleFacts& facts = node.facts;
    std::int64_t below_ns = 0;
    for (const auto& child : node.children) {
      add_own_times(*child);
      below_ns += child->facts.duration_ns;
    }
    if (facts.calls == 0) facts.duration_ns = below_ns;
    facts.own_ns = std::max<std::int64_t>(0, facts.duration_ns - below_ns);
  }

  ModuleForest forest_;
  std::unordered_map<std::string, ModuleTreeNode*> nodes_;
};

class RunModules {
 public:
  RunModules(const Reader& reader, std::optional<int> rank) : reader_(reader), rank_(rank) {}

  ModuleForest read() {
    for (EventId id = 0; id < reader_.event_count(); ++id) {
      const EventKind kind = reader_.kind(id);
      const bool is_call = kind == EventKind::Enter || kind == EventKind::Exit;
      if (!is_call && !(kind == EventKind::Value && reader_.is_tensor(id))) continue;
      if (rank_ && reader_.writers()[reader_.writer_index(id)].rank != *rank_) continue;
      const Event event = reader_.event(id);
      // An operation inside of a module may well have infinities: a mask is made of them.
      const bool is_inside = event.io == Io::Op || event.io == Io::Oracle;
      if (!event.root.empty() && !is_inside) add(event, reader_.has_nonfinite(id));
    }
    return builder_.finish();
  }

 private:
  void add(const Event& event, bool is_nonfinite) {
    const bool is_call = event.kind == EventKind::Enter || event.kind == EventKind::Exit;
    const bool is_argument = event.io == Io::Input || event.io == Io::Output;
    if (!is_call && !is_argument && !is_nonfinite) return;
    ModuleFacts& facts = builder_.node(event.root, event.scope).facts;
    if (is_call || is_argument) {
      if (facts.cls.empty()) facts.cls = event.cls;
    }
    if (event.kind == EventKind::Enter) {
      ++facts.calls;
      has_nonfinite_input_[&facts] = false;
    } else if (event.kind == EventKind::Exit) {
      std::int64_t duration_ns = 0;
      if (!parser_.parse(event.meta)["duration_ns"].get(duration_ns)) facts.duration_ns += duration_ns;
    } else {
      add_tensor(event, facts, is_nonfinite);
    }
  }

  void add_tensor(const Event& event, ModuleFacts& facts, bool is_nonfinite) {
    const bool is_input = event.io == Io::Input, is_output = event.io == Io::Output;
    const auto& shape = std::get<TensorRecord>(event.value).shape;
    if (is_input && facts.calls <= 1 && facts.outputs.empty()) facts.inputs.push_back(shape);
    const bool is_returned = is_output && !is_changed_input(event.name, event.scope, event.io);
    if (is_returned && facts.calls <= 1) facts.outputs.push_back(shape);
    if (!is_nonfinite) return;
    raise(facts.nonfinite, is_output ? NonFinite::Output : is_input ? NonFinite::Input : NonFinite::Gradient);
    if (is_input) has_nonfinite_input_[&facts] = true;
    if (is_output && !has_origin_ && !has_nonfinite_input_[&facts]) {
      facts.mark = "first NaN or Inf";
      has_origin_ = true;
    }
  }

  const Reader& reader_;
  std::optional<int> rank_;
  ForestBuilder builder_;
  simdjson::dom::parser parser_;
  std::unordered_map<const ModuleFacts*, bool> has_nonfinite_input_;  // of the current call
  bool has_origin_ = false;
};

template <typename Visit>
void visit_all(ModuleForest& forest, const Visit& visit) {
  for (auto& node : forest) {
    visit(*node);
    visit_all(node->children, visit);
  }
}

// ---- folding

// Two modules with the same text are drawn alike.
std::string structure_of(const ModuleTreeNode& node, bool with_name, bool with_shapes) {
  const ModuleFacts& facts = node.facts;
  std::string text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", with_name ? node.name : "", facts.cls, facts.calls == 0,
                                 static_cast<int>(facts.nonfinite), static_cast<int>(facts.diff), facts.mark);
  for (const auto* shapes : {&facts.inputs, &facts.outputs}) {
    if (!with_shapes) break;
    for (const auto& shape : *shapes) text += fmt::format("[{}]", fmt::join(shape, ","));
    text += '\n';
  }
  for (const auto& child : node.children) text += fmt::format("({})", structure_of(*child, true, with_shapes));
  return text;
}

void add_facts(ModuleFacts& to, const ModuleFacts& from) {
  to.paths.insert(to.paths.end(), from.paths.begin(), from.paths.end());
  to.calls += from.calls;
  to.duration_ns += from.duration_ns;
  to.own_ns += from.own_ns;
  to.hidden += from.hidden;
  raise(to.nonfinite, from.nonfinite);
  to.diff = std::max(to.diff, from.diff);
  if (to.mark.empty()) to.mark = from.mark;
  if (to.cls != from.cls) to.cls.clear();
  if (to.inputs != from.inputs) to.inputs.clear();
  if (to.outputs != from.outputs) to.outputs.clear();
}

void add_tree(ModuleTreeNode& to, const ModuleTreeNode& from) {
  add_facts(to.facts, from.facts);
  for (std::size_t i = 0; i < to.children.size(); ++i) add_tree(*to.children[i], *from.children[i]);
}

// "0-3, 7" of 0 1 2 3 7.
std::string ranges_text(std::vector<std::uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  const bool is_long = parts.size() > 6;
  if (is_long) parts.resize(6);
  return fmt::format("{}{}", fmt::join(parts, ", "), is_long ? ", ..." : "");
}

struct Fold {
  ModuleTreeNode* first;
  std::vector<std::uint64_t> numbers;
};

void fold_children(ModuleTreeNode& node, bool with_shapes) {
  for (auto& child : node.children) fold_children(*child, with_shapes);
  std::map<std::string, Fold> folds;
  std::map<std::string, std::size_t, std::less<>> family_sizes;
  std::vector<std::unique_ptr<ModuleTreeNode>> kept;
  for (auto& child : node.children) {
    const std::string_view number = last_part(child->name);
    if (!is_number(number) || number.size() > 18) {
      kept.push_back(std::move(child));
      continue;
    }
    const std::string family(family_of(child->name));
    ++family_sizes[family];
    const auto [fold, is_new] = folds.try_emplace(
        fmt::format("{}\n{}", family, structure_of(*child, false, with_shapes)), Fold{child.get(), {}});
    fold->second.numbers.push_back(std::stoull(std::string(number)));
    if (is_new)
      kept.push_back(std::move(child));
    else
      add_tree(*fold->second.first, *child);
  }
  for (auto& [key, fold] : folds) {
    if (fold.numbers.size() < 2) continue;
    const std::string family(family_of(fold.first->name));
    const bool is_whole = family_sizes[family] == fold.numbers.size() && !family.empty();
    std::string name = family;
    if (!is_whole) name += fmt::format("{}[{}]", family.empty() ? "" : ".", ranges_text(fold.numbers));
    fold.first->name = fmt::format("{} × {}", name, fold.numbers.size());
  }
  node.children = std::move(kept);
}

std::size_t folded_size(const ModuleTreeNode& node) {
  std::size_t size = 1;
  std::set<std::string> seen;
  for (const auto& child : node.children) {
    const bool is_like_another =
        is_number(last_part(child->name)) &&
        !seen.insert(fmt::format("{}\n{}", family_of(child->name), structure_of(*child, false, true))).second;
    if (!is_like_another) size += folded_size(*child);
  }
  return size;
}

std::size_t count_below(const ModuleTreeNode& node) {
  std::size_t count = 0;
  for (const auto& child : node.children)
    count += child->facts.paths.size() + count_below(*child) + child->facts.hidden;
  return count;
}

// What lies below shows in what is left: a NaN or a difference does not vanish with its module.
void take_in(ModuleFacts& facts, const ModuleTreeNode& below) {
  raise(facts.nonfinite, below.facts.nonfinite);
  facts.diff = std::max(facts.diff, below.facts.diff);
  if (facts.mark.empty()) facts.mark = below.facts.mark;
  for (const auto& child : below.children) take_in(facts, *child);
}

void prune(ModuleTreeNode& node, std::size_t depth) {
  if (depth > 1) {
    for (auto& child : node.children) prune(*child, depth - 1);
    return;
  }
  node.facts.hidden += count_below(node);
  for (const auto& child : node.children) take_in(node.facts, *child);
  node.facts.own_ns = node.facts.duration_ns;
  node.children.clear();
}

// ---- the graph

class GraphMaker {
 public:
  explicit GraphMaker(Merge merge) : merge_(merge) {}

  Graph make(const ModuleForest& forest) {
    for (const auto& root : forest) add(*root);
    for (Graph::Node& node : graph_.nodes)
      if (is_merged_[&node - graph_.nodes.data()]) node.name += fmt::format(" × {}", node.facts.paths.size());
    return std::move(graph_);
  }

 private:
  std::string merged_name(const ModuleTreeNode& node) const {
    if (merge_ == Merge::Class && !node.facts.cls.empty()) return node.facts.cls;
    const std::string unfolded = node.name.substr(0, node.name.find(" × "));
    const bool is_member = is_number(last_part(unfolded)) || unfolded.ends_with(']');
    const std::string family(family_of(unfolded));
    return is_member && !family.empty() ? family : unfolded;
  }

  std::size_t node_for(const ModuleTreeNode& node) {
    if (merge_ != Merge::None) {
      const std::string name = merged_name(node);
      const auto [place, is_new] = by_name_.try_emplace(name, graph_.nodes.size());
      if (!is_new) {
        add_facts(graph_.nodes[place->second].facts, node.facts);
        is_merged_[place->second] = true;
        return place->second;
      }
      graph_.nodes.push_back({name, node.facts});
      is_merged_.push_back(node.facts.paths.size() > 1);
    } else {
      graph_.nodes.push_back({node.name, node.facts});
      is_merged_.push_back(false);
    }
    return graph_.nodes.size() - 1;
  }

  std::size_t add(const ModuleTreeNode& node) {
    const std::size_t id = node_for(node);
    for (const auto& child : node.children) {
      const std::size_t to = add(*child);
      const std::size_t count = merge_ == Merge::None ? 1 : child->facts.paths.size();
      const auto [place, is_new] = edges_.try_emplace({id, to}, graph_.edges.size());
      if (is_new)
        graph_.edges.push_back({id, to, count});
      else
        graph_.edges[place->second].count += count;
    }
    return id;
  }

  Merge merge_;
  Graph graph_;
  std::vector<bool> is_merged_;
  std::map<std::string, std::size_t> by_name_;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> edges_;
};

}  // namespace

std::string_view to_string(DiffState state) noexcept {
  constexpr std::string_view kNames[] = {"unknown", "equal", "bits", "later", "differs", "alone"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view to_string(NonFinite where) noexcept {
  constexpr std::string_view kNames[] = {"none", "input", "gradient", "output"};
  return kNames[static_cast<std::size_t>(where)];
}

ModuleForest read_modules(const Reader& reader, std::optional<int> rank) { return RunModules(reader, rank).read(); }

ModuleForest read_module_paths(std::istream& text) {
  ForestBuilder builder;
  for (std::string line; std::getline(text, line);) {
    if (!simdjson::validate_utf8(line) || line.find('\0') != line.npos)
      throw Error(ErrorCode::Corrupt, "a trace is a text with the path of a module on each line, this is none");
    const std::size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
    if (begin != line.npos) ++builder.node("model", line.substr(begin, end - begin + 1)).facts.calls;
  }
  return builder.finish();
}

void add_diff(ModuleForest& forest, const RunDiff& diff) {
  std::map<std::pair<std::string, std::string>, const DiffModule*> modules;
  for (const DiffModule& module : diff.modules) modules[{module.root, module.module}] = &module;
  std::set<std::pair<std::string, std::string>> alone, origins;
  for (const DiffUnmatched& unmatched : diff.unmatched)
    if (unmatched.side == 0 && unmatched.name.empty()) alone.insert({unmatched.root, unmatched.module});
  for (const DiffOrigin& origin : diff.origins) origins.insert({origin.place.root, origin.place.module});
  const DiffPlace* first = diff.first_divergence ? &diff.first_divergence->place : nullptr;
  visit_all(forest, [&](ModuleTreeNode& node) {
    ModuleFacts& facts = node.facts;
    const std::pair key{facts.root, facts.paths.front()};
    facts.mark.clear();
    if (first != nullptr && first->root == key.first && first->module == key.second)
      facts.mark = "first divergence";
    else if (origins.contains(key))
      facts.mark = "starts a difference of its own";
    if (alone.contains(key)) facts.diff = DiffState::Alone;
    const auto found = modules.find(key);
    if (found == modules.end()) return;
    const DiffModule& module = *found->second;
    const bool is_first_phase =
        first != nullptr && (module.phase == first->phase || (first->phase == "init" && module.phase == "forward"));
    const bool is_first_seen = is_first_phase && module.step == first->step;
    if (!module.is_within_tolerance)
      facts.diff = is_first_seen ? DiffState::Differs : DiffState::Later;
    else
      facts.diff = module.is_bit_equal ? DiffState::Equal : DiffState::Bits;
  });
}

void fold_repeated(ModuleForest& forest, bool with_shapes) {
  for (auto& root : forest) fold_children(*root, with_shapes);
}

std::size_t count_folded(const ModuleForest& forest) {
  std::size_t count = 0;
  for (const auto& root : forest) count += folded_size(*root);
  return count;
}

void prune_to_depth(ModuleForest& forest, std::size_t depth) {
  for (auto& root : forest) prune(*root, std::max<std::size_t>(1, depth));
}

std::size_t count_nodes(const ModuleForest& forest) {
  std::size_t count = 0;
  for (const auto& node : forest) count += 1 + count_nodes(node->children);
  return count;
}

Graph make_graph(const ModuleForest& forest, Merge merge) { return GraphMaker(merge).make(forest); }

}  // namespace tenscope::report
