#include "compare/backward_order.hpp"

#include <algorithm>
#include <unordered_map>

namespace tenscope::compare {
namespace {

bool is_below(std::string_view path, std::string_view above) {
  return above.empty() || path == above || (path.starts_with(above) && path[above.size()] == '.');
}

std::string common_ancestor(std::string_view x, std::string_view y) {
  while (!is_below(y, x)) x = parent_path(x);
  return std::string(x);
}

}  // namespace

std::optional<std::string> blame_by_order(const ModuleTree& tree, const std::vector<int>& calls,
                                          const std::vector<GradientSeen>& gradients) {
  std::unordered_map<int, std::size_t> last_call;
  for (std::size_t i = 0; i < calls.size(); ++i) last_call[calls[i]] = i;
  std::unordered_map<int, bool> differs;
  for (const GradientSeen& gradient : gradients)
    if (last_call.contains(gradient.node)) differs[gradient.node] |= gradient.differs;

  std::optional<std::size_t> last_differing, next_agreeing;
  for (const auto& [node, does] : differs)
    if (does) last_differing = std::max(last_differing.value_or(0), last_call[node]);
  if (!last_differing) return std::nullopt;
  std::size_t before_differing = 0, before_agreeing = 0;
  for (const auto& [node, does] : differs) {
    const std::size_t at = last_call[node];
    if (at < *last_differing) ++(does ? before_differing : before_agreeing);
    if (!does && at > *last_differing) next_agreeing = std::min(next_agreeing.value_or(at), at);
  }
  if (!next_agreeing || before_agreeing > before_differing) return std::nullopt;

  const auto path = [&](std::size_t call) -> const std::string& {
    return tree.nodes[static_cast<std::size_t>(calls[call])].path;
  };
  const auto has_parameters_below = [&](const std::string& above) {
    return std::any_of(differs.begin(), differs.end(), [&](const auto& entry) {
      return is_below(tree.nodes[static_cast<std::size_t>(entry.first)].path, above);
    });
  };
  for (std::size_t i = *last_differing + 1; i < calls.size(); ++i) {
    if (i > *next_agreeing && !is_below(path(i), path(*next_agreeing))) break;
    if (!is_below(path(i), path(*last_differing)) && !has_parameters_below(path(i))) return path(i);
  }
  return common_ancestor(path(*last_differing), path(*next_agreeing));
}

}  // namespace tenscope::compare
