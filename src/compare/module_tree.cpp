#include "compare/module_tree.hpp"

#include <simdjson.h>

#include <algorithm>

namespace tenscope::compare {
namespace {

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  seed ^= value + 0x9E3779B97F4A7C15ULL + (seed << 12) + (seed >> 4);
  return seed * 0xFF51AFD7ED558CCDULL;
}

class TreeBuilder {
 public:
  explicit TreeBuilder(Interner& interner) : interner_(interner) {}

  ModuleTree build(const Timeline& timeline) {
    for (const Lane& lane : timeline.lanes)
      for (const Item& item : lane.items)
        if (item.root != 0) add(item);
    for (const int root : tree_.roots) finish(root);
    return std::move(tree_);
  }

 private:
  int node(TextId root, TextId scope) {
    const auto [found, is_new] =
        tree_.index.try_emplace(ModuleTree::key(root, scope), static_cast<int>(tree_.nodes.size()));
    if (!is_new) return found->second;
    const int id = found->second;
    const std::string path(interner_.text(scope));
    tree_.nodes.push_back({.root = root, .path = path});
    if (path.empty()) {
      tree_.roots.push_back(id);
    } else {
      const int parent = node(root, interner_.text(parent_path(path)));
      tree_.nodes[id].parent = parent;
      tree_.nodes[parent].children.push_back(id);
    }
    return id;
  }

  void add(const Item& item) {
    const int id = node(item.root, item.scope);
    ModuleNode& module = tree_.nodes[id];
    if (item.cls != 0 && module.cls == 0) module.cls = item.cls;
    if (item.kind == EventKind::Enter) module.is_called = true;
    if (item.kind == EventKind::Enter && module.site == 0) module.site = item.site;
    if (item.kind == EventKind::Enter && item.text != 0) set_arguments(module, interner_.text(item.text));
    if (item.kind == EventKind::Enter) module.order = std::min<std::uint64_t>(module.order, position_++);
    if (item.io == Io::Param || item.io == Io::Buffer) module.has_state = true;
    if (!item.is_tensor()) return;
    if (item.phase == Phase::Init) {
      module.structure = mix(mix(module.structure, item.tail), mix(item.shape, static_cast<std::uint64_t>(item.io)));
      if (item.io == Io::Param) module.content = mix(module.content, item.fingerprint.low);
    } else if (item.io == Io::Output && item.call == 0 && module.content == 0) {
      first_output_.try_emplace(id, item.fingerprint.low);
    }
  }

  // From the JSON of a list of texts.
  void set_arguments(ModuleNode& module, std::string_view json) {
    simdjson::dom::array names;
    if (!module.arguments.empty() || parser_.parse(json.data(), json.size()).get(names) != simdjson::SUCCESS) return;
    for (const auto name : names) {
      std::string_view text;
      if (name.get(text) == simdjson::SUCCESS) module.arguments.push_back(interner_.text(text));
    }
  }

  void finish(int id) {
    ModuleNode& module = tree_.nodes[id];
    for (const int child : module.children) {
      finish(child);
      module.order = std::min(module.order, tree_.nodes[child].order);
    }
    std::stable_sort(module.children.begin(), module.children.end(),
                     [&](int x, int y) { return tree_.nodes[x].order < tree_.nodes[y].order; });
    module.structure = mix(module.structure, module.cls);
    for (const int child : module.children) {
      module.structure = mix(module.structure, tree_.nodes[child].structure);
      if (tree_.nodes[child].content != 0) module.content = mix(module.content, tree_.nodes[child].content);
    }
    if (module.content == 0)
      if (const auto output = first_output_.find(id); output != first_output_.end()) module.content = output->second;
  }

  Interner& interner_;
  ModuleTree tree_;
  simdjson::dom::parser parser_;
  std::unordered_map<int, std::uint64_t> first_output_;
  std::uint64_t position_ = 0;
};

}  // namespace

ModuleTree build_module_tree(const Timeline& timeline, Interner& interner) {
  return TreeBuilder(interner).build(timeline);
}

}  // namespace tenscope::compare
