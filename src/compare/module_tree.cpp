#include "compare/module_tree.hpp"

#include <simdjson.h>

#include <algorithm>
#include <unordered_set>

#include "store/sources.hpp"

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
    for (const Lane& lane : timeline.lanes) {
      sources_.clear();
      described_.clear();
      for (const Item& item : lane.items) {
        if (item.root != 0)
          add(item);
        else if (item.kind == EventKind::Note && interner_.text(item.name) == kSourceNote)
          add_source(interner_.text(item.text));
      }
    }
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
    if (item.kind == EventKind::Enter && item.text != 0) add_meta(id, module, item);
    if (item.kind == EventKind::Enter) module.order = std::min<std::uint64_t>(module.order, position_++);
    if (!item.is_tensor()) return;
    if (item.phase == Phase::Init) {
      const auto io = static_cast<std::uint64_t>(item.io);
      if (!seen_.insert(mix(mix(static_cast<std::uint64_t>(id), item.tail), io)).second)
        return;  // of another process, or before a later call
      module.own += mix(mix(item.tail, item.shape), io);
      if (item.io != Io::Param) return;
      module.parameters.push_back(mix(item.fingerprint.low, item.shape));
      module.content += module.parameters.back();
    } else if (item.call == 0 && (item.io == Io::Input || item.io == Io::Output)) {
      Flow& flow = flows_[id];
      std::uint64_t& first = item.io == Io::Input ? flow.input : flow.output;
      if (first != 0) return;
      first = mix(item.fingerprint.low, item.shape);
      module.shapes = mix(module.shapes, mix(item.shape, static_cast<std::uint64_t>(item.io)));
    }
  }

  // The first call's describes the module, and so does that of a call with another forward.
  void add_meta(int id, ModuleNode& module, const Item& item) {
    const std::string_view json = interner_.text(item.text);
    simdjson::dom::object object;
    if (parser_.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) return;
    simdjson::dom::array names;
    const bool is_description = object["arguments"].get(names) == simdjson::SUCCESS;
    if (is_description) add_forward(module, item, object);
    if (module.description != 0 || !is_description) {
      if (described_.contains(id)) module.changes.push_back({item.step, item.call, item.text});
      return;
    }
    described_.insert(id);
    module.description = item.text;
    for (const auto name : names) {
      std::string_view text;
      if (name.get(text) == simdjson::SUCCESS) module.arguments.push_back(interner_.text(text));
    }
    std::string_view file;
    if (object["class_file"].get(file) == simdjson::SUCCESS) module.class_source = source_of(file);
  }

  // Told at the first call, and where it is another than before. Other processes' come later.
  void add_forward(ModuleNode& module, const Item& item, simdjson::dom::object meta) {
    if (!module.forwards.empty() && item.call <= module.forwards.back().call) return;
    ForwardOfModule& forward = module.forwards.emplace_back();
    forward.call = item.call;
    forward.function = function_at(interner_.text(item.site));
    simdjson::dom::array wrappers;
    if (meta["wrappers"].get(wrappers) == simdjson::SUCCESS) {
      for (const auto one : wrappers) {
        std::string_view site;
        if (one.get(site) == simdjson::SUCCESS) forward.wrappers.push_back(function_at(site));
      }
    }
    std::string_view name;
    if (meta["without_source"].get(name) == simdjson::SUCCESS) forward.without_source = interner_.text(name);
  }

  SourceOfFunction function_at(std::string_view site) {
    return {.site = interner_.text(site), .file = source_of(site.substr(0, site.rfind(':')))};
  }

  void add_source(std::string_view meta) {
    const auto source = store::parse_source(meta);
    if (!source) return;
    tree_.has_sources = true;
    const TextId file = interner_.text(source->file);
    sources_[file] = {file, interner_.text(source->fingerprint), interner_.text(source->left_out)};
  }

  SourceOfModule source_of(std::string_view file) {
    const TextId id = interner_.text(file);
    const auto found = sources_.find(id);
    return found == sources_.end() ? SourceOfModule{.file = id} : found->second;
  }

  void finish(int id) {
    ModuleNode& module = tree_.nodes[id];
    for (const int child : module.children) {
      finish(child);
      module.order = std::min(module.order, tree_.nodes[child].order);
    }
    std::stable_sort(module.children.begin(), module.children.end(),
                     [&](int x, int y) { return tree_.nodes[x].order < tree_.nodes[y].order; });
    module.structure = mix(module.own, module.cls);
    for (const int child : module.children) {
      module.structure = mix(module.structure, tree_.nodes[child].structure);
      module.content += tree_.nodes[child].content;
    }
    if (const auto found = flows_.find(id); found != flows_.end() && found->second.output != 0) {
      module.flow = mix(found->second.input, found->second.output);
      module.hands_on = found->second.input == found->second.output;
    }
  }

  struct Flow {
    std::uint64_t input = 0, output = 0;
  };

  Interner& interner_;
  ModuleTree tree_;
  simdjson::dom::parser parser_;
  std::unordered_set<std::uint64_t> seen_;              // parameters and buffers
  std::unordered_map<int, Flow> flows_;                 // of the first call
  std::unordered_set<int> described_;                   // in the process at hand
  std::unordered_map<TextId, SourceOfModule> sources_;  // by file, as far as the process at hand has told of them
  std::uint64_t position_ = 0;
};

}  // namespace

ModuleTree build_module_tree(const Timeline& timeline, Interner& interner) {
  return TreeBuilder(interner).build(timeline);
}

}  // namespace tenscope::compare
