#include "compare/layout_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace tenscope::compare {
namespace {

// What tells one layout from another.
struct Look {
  std::multiset<std::tuple<std::string, std::string>> parameters;  // shapes, and which parts they are
  std::set<std::string> inputs;                                    // shapes of what the outermost modules are given
  std::map<std::string, std::set<std::string>> values;             // shapes of inputs and outputs, by name
  std::map<std::string, std::set<std::string>> plain;              // shapes of what is in no module, by name
  std::set<std::string> parts;                                     // of plain tensors that say which part they are
  std::size_t passes = 0;                                          // calls of outermost modules
  bool is_stage = false;                                           // of a pipeline
};

Look look_at(const Timeline& timeline, const Interner& interner) {
  Look look;
  for (const Lane& lane : timeline.lanes) {
    std::int64_t first = -1;  // the first step with a call
    for (const Item& item : lane.items) {
      if (item.kind == EventKind::Note && interner.text(item.name) == "pipeline_stage") look.is_stage = true;
      if (item.io == Io::Param && item.phase == Phase::Init)
        look.parameters.emplace(interner.text(item.shape), interner.text(item.part));
      if (item.root == 0 && item.is_tensor()) {
        look.plain[std::string(interner.text(item.name))].emplace(interner.text(item.shape));
        if (item.part != 0) look.parts.emplace(interner.text(item.part));
      }
      if (item.root == 0) continue;
      if (item.kind == EventKind::Enter && first < 0) first = item.step;
      if (item.step != first) continue;
      if (item.is_tensor() && (item.io == Io::Input || item.io == Io::Output))
        look.values[std::string(interner.text(item.name))].emplace(interner.text(item.shape));
      if (item.scope != 0) continue;
      if (item.kind == EventKind::Enter) ++look.passes;
      if (item.io == Io::Input && item.is_tensor()) look.inputs.emplace(interner.text(item.shape));
    }
  }
  return look;
}

bool have_common(const std::set<std::string>& x, const std::set<std::string>& y) {
  return std::ranges::any_of(x, [&](const std::string& shape) { return y.contains(shape); });
}

// Names say which tensors belong together.
bool are_shapes_alike(const std::map<std::string, std::set<std::string>>& x,
                      const std::map<std::string, std::set<std::string>>& y) {
  return std::ranges::all_of(x, [&](const auto& value) {
    const auto other = y.find(value.first);
    return other == y.end() || have_common(other->second, value.second);
  });
}

}  // namespace

bool are_laid_out_alike(const Timeline& a, const Timeline& b, int world_a, int world_b, const Interner& interner) {
  const Look x = look_at(a, interner), y = look_at(b, interner);
  if (x.passes == 0 || y.passes == 0) {
    const bool may_be_of_parts = world_a != world_b || x.parts != y.parts;
    return !may_be_of_parts || (x.parts == y.parts && are_shapes_alike(x.plain, y.plain));
  }
  if (world_a != world_b) return false;
  // In one process only a batch that is cut into others is another layout; one call more, to warm up, is none.
  const bool are_inputs_alike = have_common(x.inputs, y.inputs) || x.inputs.empty() || y.inputs.empty();
  if (world_a == 1) return x.passes == y.passes || are_inputs_alike;
  const bool are_values_alike = are_shapes_alike(x.values, y.values);
  return are_values_alike && are_inputs_alike && x.parameters == y.parameters && x.is_stage == y.is_stage;
}

}  // namespace tenscope::compare
