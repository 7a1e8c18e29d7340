// Overview. A lane is a row of outermost calls, each known by its module, the fingerprints of its inputs, and whether a
// backward went through it. Rows of different lengths are aligned; where that pairs more calls of equal inputs than
// their numbers do, each event of the second lane gets the number that it has in the first run's count. Calls inside an
// outermost call are counted from its beginning, backwards from the outermost call before them. Calls of modules that
// one run alone has do not count: a loss may be a module in one of them.
#include "compare/call_match.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "compare/call_key.hpp"
#include "compare/sequence.hpp"
#include "compare/thresholds.hpp"

namespace tenscope::compare {
namespace {

constexpr std::size_t kOutside = ~std::size_t{0};

struct OuterCall {
  int node = -1;  // of the first run's tree; -1: a module that it does not have
  TextId root = 0;
  std::int64_t call = 0, step = 0;
  std::uint64_t inputs = 0;
  bool has_backward = false;
  std::unordered_map<int, std::int64_t> first_call;  // of each module called in it, by node
  std::int64_t first_backward = -1;

  std::uint64_t sort() const { return (static_cast<std::uint64_t>(node) + 2) * 2 + (has_backward ? 1 : 0); }
  std::uint64_t token() const { return (inputs ^ sort()) * 0x9E3779B97F4A7C15ULL | 1; }
};

class Row {
 public:
  // `partner`: of each module in the other run. The nodes are those of the first run.
  Row(const Lane& lane, const ModuleTree& tree, const std::vector<int>& partner, bool is_second)
      : tree_(tree), partner_(partner), is_second_(is_second) {
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> stacks;  // outermost calls under way, by thread
    std::unordered_map<CallKey, std::size_t, CallKeyHash> made_in;       // by module (of this run's tree) and call
    outer_.assign(lane.items.size(), kOutside);
    for (std::size_t i = 0; i < lane.items.size(); ++i) {
      const Item& item = lane.items[i];
      const int node = node_of(item);
      std::vector<std::size_t>& stack = stacks[item.thread];
      if (item.kind == EventKind::Enter && (!stack.empty() || is_in_both(own_node(item)))) {
        if (stack.empty()) calls.push_back({.node = node, .root = item.root, .call = item.call, .step = item.step});
        stack.push_back(stack.empty() ? calls.size() - 1 : stack.back());
        calls[stack.back()].first_call.try_emplace(node, item.call);
        made_in[own_key(item)] = stack.back();
      }
      if (!stack.empty()) {
        outer_[i] = stack.back();
        OuterCall& call = calls[stack.back()];
        if (item.io == Io::Input && node == call.node && item.call == call.call && item.is_tensor())
          call.inputs += item.fingerprint.low * 0x9E3779B97F4A7C15ULL;  // in any order: keywords have none
      } else if (item.io == Io::GradOutput || item.io == Io::GradInput) {
        if (const auto made = made_in.find(own_key(item)); made != made_in.end()) {
          outer_[i] = made->second;
          calls[made->second].has_backward = true;
        }
      } else if (is_of_backward(item) && !calls.empty() && calls.back().first_backward < 0) {
        calls.back().first_backward = item.call;
      }
      if (item.kind == EventKind::Exit && !stack.empty()) stack.pop_back();
      calls_before_.push_back(calls.size());
    }
  }

  static bool is_of_backward(const Item& item) {
    return item.io == Io::Loss || (item.io == Io::Grad && item.phase == Phase::Backward);
  }

  int node_of(const Item& item) const {
    const int node = own_node(item);
    return node < 0 || !is_second_ ? node : partner_[static_cast<std::size_t>(node)];
  }

  std::size_t outer(std::size_t item) const { return outer_[item]; }
  std::size_t calls_before(std::size_t item) const { return calls_before_[item]; }  // begun until it, itself included

  std::vector<OuterCall> calls;

 private:
  int own_node(const Item& item) const { return item.root == 0 ? -1 : tree_.find(item.root, item.scope); }

  CallKey own_key(const Item& item) const { return {own_node(item), item.call}; }

  // A module, or anything in it: the outermost one may be a wrapper.
  bool is_in_both(int node) const {
    if (node < 0) return false;
    const auto index = static_cast<std::size_t>(node);
    return partner_[index] >= 0 ||
           std::ranges::any_of(tree_.nodes[index].children, [&](int child) { return is_in_both(child); });
  }

  const ModuleTree& tree_;
  const std::vector<int>& partner_;
  const bool is_second_;
  std::vector<std::size_t> outer_, calls_before_;
};

class Counter {
 public:
  Counter(const Row& a, const Row& b, std::vector<std::size_t> partner) : a_(a), b_(b), partner_(std::move(partner)) {}

  CallNumber number(const Item& item, std::size_t at) const {
    const CallNumber as_recorded{item.step, item.call}, alone{item.step, item.call, false};
    if (const std::size_t outer = b_.outer(at); outer != kOutside) {
      const OuterCall* other = partner(outer);
      if (other == nullptr) return alone;
      const auto theirs = other->first_call.find(b_.node_of(item)),
                 ours = b_.calls[outer].first_call.find(b_.node_of(item));
      if (theirs == other->first_call.end() || ours == b_.calls[outer].first_call.end()) return alone;
      return {item.step + other->step - b_.calls[outer].step, item.call + theirs->second - ours->second};
    }
    if (Row::is_of_backward(item) && b_.calls_before(at) > 0) {
      const std::size_t before = b_.calls_before(at) - 1;
      const OuterCall* other = partner(before);
      if (other == nullptr || other->first_backward < 0) return alone;
      return {item.step, item.call + other->first_backward - b_.calls[before].first_backward};
    }
    const bool is_between = b_.calls_before(at) > 0 && b_.calls_before(at) < b_.calls.size();
    if (item.phase == Phase::Init && item.is_tensor() && is_between) {
      const std::size_t next = b_.calls_before(at);
      const OuterCall* other = partner(next);
      if (other == nullptr) return alone;
      return {item.step + other->step - b_.calls[next].step, item.call};
    }
    return as_recorded;
  }

 private:
  const OuterCall* partner(std::size_t call) const {
    return partner_[call] == kOutside ? nullptr : &a_.calls[partner_[call]];
  }

  const Row& a_;
  const Row& b_;
  std::vector<std::size_t> partner_;
};

std::vector<std::uint64_t> tokens(const Row& row) {
  std::vector<std::uint64_t> result;
  for (const OuterCall& call : row.calls) result.push_back(call.token());
  return result;
}

void note_left_over(const Row& row, const std::vector<bool>& is_paired, int side, const Interner& interner,
                    std::vector<DiffNote>& notes) {
  std::map<TextId, std::vector<std::int64_t>> left;
  for (std::size_t i = 0; i < row.calls.size(); ++i)
    if (!is_paired[i]) left[row.calls[i].root].push_back(row.calls[i].call);
  for (const auto& [root, calls] : left) {
    const auto end = calls.begin() + static_cast<std::ptrdiff_t>(std::min(calls.size(), thresholds::kListedCalls));
    notes.push_back({.kind = DiffNote::Kind::ExtraCalls,
                     .side = side,
                     .subject = std::string(interner.text(root)),
                     .a = fmt::format("{}", fmt::join(calls.begin(), end, ", ")),
                     .b = {},
                     .count = calls.size()});
  }
}

}  // namespace

std::optional<CallMatch> match_calls(const Lane& a, const Lane& b, const ModuleTree& tree_a, const ModuleTree& tree_b,
                                     const std::vector<int>& module_to_a, const std::vector<int>& module_to_b,
                                     const Interner& interner) {
  const auto outermost_calls = [](const Lane& lane) {
    std::unordered_map<std::uint64_t, int> depth;
    std::size_t count = 0;
    for (const Item& item : lane.items) {
      if (item.kind == EventKind::Enter && depth[item.thread]++ == 0) ++count;
      if (item.kind == EventKind::Exit) --depth[item.thread];
    }
    return count;
  };
  if (outermost_calls(a) == outermost_calls(b)) return std::nullopt;
  const Row row_a(a, tree_a, module_to_b, false), row_b(b, tree_b, module_to_a, true);
  const std::vector<std::uint64_t> tokens_a = tokens(row_a), tokens_b = tokens(row_b);
  const auto pairs = align_sequences(tokens_a, tokens_b, [&](std::size_t i, std::size_t j) {
    return tokens_a[i] == tokens_b[j] ? 8 : row_a.calls[i].sort() == row_b.calls[j].sort() ? 1 : 0;
  });
  std::size_t same_by_number = 0, same_by_inputs = 0;
  for (std::size_t i = 0; i < std::min(tokens_a.size(), tokens_b.size()); ++i)
    same_by_number += tokens_a[i] == tokens_b[i];
  std::vector<std::size_t> partner(tokens_b.size(), kOutside);
  std::vector<bool> is_paired_a(tokens_a.size()), is_paired_b(tokens_b.size());
  for (const auto& [i, j] : pairs.pairs) {
    same_by_inputs += tokens_a[i] == tokens_b[j];
    partner[j] = i;
    is_paired_a[i] = is_paired_b[j] = true;
  }
  if (same_by_inputs <= same_by_number) return std::nullopt;

  CallMatch match;
  const Counter counter(row_a, row_b, std::move(partner));
  match.numbers.reserve(b.items.size());
  for (std::size_t j = 0; j < b.items.size(); ++j) match.numbers.push_back(counter.number(b.items[j], j));
  note_left_over(row_a, is_paired_a, 0, interner, match.notes);
  note_left_over(row_b, is_paired_b, 1, interner, match.notes);
  if (pairs.is_rough) match.notes.push_back({.kind = DiffNote::Kind::RoughAlignment});
  return match;
}

}  // namespace tenscope::compare
