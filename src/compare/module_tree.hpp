#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// A source file, as the run had told of it when a module was called first.
struct SourceOfModule {
  TextId file = 0;  // 0: nothing says which
  TextId fingerprint = 0;
  TextId left_out = 0;  // why there is none
};

// A call before which attributes of the module had been changed.
struct AttributeChange {
  std::int64_t step = 0, call = 0;
  TextId meta = 0;  // of the call, as JSON: `changed` and `gone`
};

// A function that ran as a module's forward, or around it.
struct SourceOfFunction {
  TextId site = 0;  // where it begins; 0: not recorded
  SourceOfModule file;
};

// What ran as a module's forward from one of its calls on.
struct ForwardOfModule {
  std::int64_t call = 0;
  SourceOfFunction function;
  std::vector<SourceOfFunction> wrappers;  // the outermost first
  TextId without_source = 0;               // a function that has none, by its name; 0: all have one
};

// A module of a run, or a name on the way to one.
struct ModuleNode {
  TextId root = 0;
  std::string path;
  TextId cls = 0;
  TextId site = 0;                       // where its forward begins, where that was recorded
  std::vector<TextId> arguments;         // of its forward, in their order, where that was recorded
  TextId description = 0;                // the meta of its first call, as JSON: class, attributes
  std::vector<AttributeChange> changes;  // in the process that this is of
  SourceOfModule class_source;
  std::vector<ForwardOfModule> forwards;  // the first, and those that replaced it; empty: not recorded
  bool is_called = false;                 // by itself: a compiled region calls nothing that can be seen
  int parent = -1;                        // -1: an outermost module
  std::vector<int> children;              // in the order of their first call
  std::uint64_t order = ~0ULL;            // of the first call in it, or below it
  std::uint64_t structure = 0;            // class, parameters' names and shapes, and those of the modules below
  std::uint64_t own = 0;                  // its own parameters' and buffers' names and shapes; 0: it has none
  std::uint64_t content = 0;  // the numbers of all parameters in it, whatever their names and order; 0: none
  std::vector<std::uint64_t> parameters;  // the numbers of each of its own
  std::uint64_t shapes = 0;               // of the first call's first input and first output
  bool hands_on = false;                  // the first call's first output is its first input
  std::uint64_t flow = 0;                 // the numbers of the first call's first input and first output; 0: unknown
};

// The modules of a run: what its events say of them, over all its processes.
struct ModuleTree {
  std::vector<ModuleNode> nodes;
  std::vector<int> roots;  // in the order of their first event
  bool has_sources = false;
  std::unordered_map<std::uint64_t, int> index;

  static std::uint64_t key(TextId root, TextId scope) { return (static_cast<std::uint64_t>(root) << 32) | scope; }
  int find(TextId root, TextId scope) const {
    const auto found = index.find(key(root, scope));
    return found == index.end() ? -1 : found->second;
  }
};

// A module as one of the runs has it.
struct ModuleOfRun {
  const ModuleTree* tree = nullptr;
  const ModuleNode* node = nullptr;
};

ModuleTree build_module_tree(const Timeline& timeline, Interner& interner);

// A rule of a map that fits no module; it may fit tensors.
struct UnusedRule {
  std::string text, reason;
};

// For each node of one tree its partner in the other, or -1.
struct ModuleMatch {
  std::vector<int> to_b, to_a;
  bool is_rough = false;  // there were too many to align them exactly (sequence.hpp)
  std::vector<UnusedRule> unused;
};

ModuleMatch match_modules(const ModuleTree& a, const ModuleTree& b, const std::vector<std::string>& map);

}  // namespace tenscope::compare
