// Overview. A call of an outermost module is taken apart into computations: a module without others in it makes its
// outputs of its inputs; the code of a module around others makes their inputs, and its own outputs, of what it has at
// hand, unless a tensor is just handed on, which equal fingerprints tell. Each computation adds an error, and hands on
// those of its sources. How it hands them on is known where the computation is (replay.cpp); where nothing arrives, all
// is added; else relative errors are taken to leave as large as they arrive.
//
// Then the squared error of the outermost module's outputs is followed back through the computations, the last first:
// each keeps the part that it has added and divides the rest among its sources.
#include "compare/budget.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "compare/call_budget.hpp"

namespace tenscope::compare {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The calls of one thread.
class ThreadWalk {
 public:
  ThreadWalk(const Alignment& alignment, const Interner& interner, const Measures& measures,
             const std::vector<BudgetParameter>& parameters, BudgetSums& sums)
      : alignment_(alignment), interner_(interner), measures_(measures), parameters_(parameters), sums_(sums) {}

  // `is_counted`: calls that begin here count, not those that training has moved apart.
  void enter(int node, bool is_paired, bool is_counted) {
    if (open_.empty()) {
      call_.reset();
      if (is_paired && is_counted)
        call_ = std::make_unique<CallBudget>(alignment_, interner_, measures_, parameters_, sums_);
      else if (is_paired)
        ++root_of(node).left_out;
    }
    // The code of a module that the first run alone has counts as that of the module around it.
    std::optional<std::size_t> around = open_.empty() ? std::nullopt : open_.back().frame;
    if (call_ == nullptr || !is_paired) {
      open_.push_back({node, around, false});
      return;
    }
    if (!open_.empty() && !around) call_.reset();  // outermost is a module without partner
    open_.push_back({node, call_ == nullptr ? std::nullopt : std::optional(call_->enter(node, around)), true});
  }

  void exit(int node) {
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& one) { return one.node == node; });
    if (found == open_.rend()) return;
    open_.erase(found.base() - 1, open_.end());  // and calls within it that were left by a raise
    if (open_.empty() && call_ != nullptr) {
      call_->finish();
      call_.reset();
    }
  }

  void take(int node, const Item& a, const Item& b) {
    if (call_ == nullptr) return;
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& one) { return one.node == node; });
    if (found == open_.rend() || !found->is_paired || !found->frame) return;
    if (a.io == Io::Input)
      call_->take_input(*found->frame, a, b);
    else
      call_->take_output(*found->frame, a, b);
  }

 private:
  struct Open {
    int node;
    std::optional<std::size_t> frame;  // in the call's budget
    bool is_paired;
  };

  BudgetSums::Root& root_of(int node) {
    const std::string root(interner_.text(alignment_.tree_a.nodes[static_cast<std::size_t>(node)].root));
    return sums_.roots.try_emplace(root, BudgetSums::Root{.order = sums_.roots.size()}).first->second;
  }

  const Alignment& alignment_;
  const Interner& interner_;
  const Measures& measures_;
  const std::vector<BudgetParameter>& parameters_;
  BudgetSums& sums_;
  std::unique_ptr<CallBudget> call_;
  std::vector<Open> open_;
};

void walk(const Alignment& alignment, const LanePair& lane, const Interner& interner, const Measures& measures,
          BudgetSums& sums) {
  const std::vector<Item>& items = lane.a->items;
  std::vector<BudgetParameter> parameters;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.io != Io::Param || item.phase != Phase::Init || !item.is_tensor()) continue;
    const bool is_equal =
        lane.to_b[i] != kAlone && is_same_value(item, lane.b->items[static_cast<std::size_t>(lane.to_b[i])]);
    parameters.push_back({&item, alignment.node_of_a(item), is_equal});
  }
  std::unordered_map<std::uint64_t, ThreadWalk> threads;
  std::int64_t first_trained = std::numeric_limits<std::int64_t>::max();  // step
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.phase == Phase::Backward || item.phase == Phase::Optimizer)
      first_trained = std::min(first_trained, item.step);
    const int node = alignment.node_of_a(item);
    if (node < 0) continue;
    ThreadWalk& thread =
        threads.try_emplace(item.thread, alignment, interner, measures, parameters, sums).first->second;
    const bool is_paired = lane.to_b[i] != kAlone;
    if (item.kind == EventKind::Enter) {
      thread.enter(node, is_paired, item.step <= first_trained);
    } else if (item.kind == EventKind::Exit) {
      thread.exit(node);
    } else if (is_paired && is_value(item) && item.is_tensor() && (item.io == Io::Input || item.io == Io::Output)) {
      const Item& other = lane.b->items[static_cast<std::size_t>(lane.to_b[i])];
      if (other.is_tensor()) thread.take(node, item, other);
    }
  }
}

}  // namespace

void BudgetSums::add(const BudgetSums& other) {
  for (const auto& [key, from] : other.modules) {
    const auto [place, is_new] = modules.try_emplace(key, from);
    if (is_new) continue;
    Module& into = place->second;
    into.calls += from.calls;
    into.assumed += from.assumed;
    into.unknown += from.unknown;
    into.arriving += from.arriving;
    into.leaving += from.leaving;
    into.adds += from.adds;
    into.handed_on += from.handed_on;
    into.share += from.share;
  }
  for (const auto& [key, from] : other.roots) {
    const auto [place, is_new] = roots.try_emplace(key, from);
    if (is_new) continue;
    Root& into = place->second;
    into.calls += from.calls;
    into.left_out += from.left_out;
    into.with_error += from.with_error;
    into.leaving += from.leaving;
    into.from_inputs += from.from_inputs;
    into.not_traced += from.not_traced;
  }
}

DiffBudget BudgetSums::result() const {
  const auto mean = [](double sum, std::size_t count) { return count > 0 ? sum / static_cast<double>(count) : kNan; };
  DiffBudget budget;
  std::vector<std::pair<std::size_t, DiffBudget::Module>> listed;
  std::vector<std::pair<std::size_t, std::string>> unknown;
  for (const auto& [key, of] : modules) {
    const auto& [root, path, is_own_code] = key;
    if (of.calls == 0) {
      unknown.emplace_back(of.order, path.empty() ? root : path);
      continue;
    }
    listed.push_back({of.order,
                      {.root = root,
                       .module = path,
                       .cls = of.cls,
                       .is_own_code = is_own_code,
                       .calls = of.calls,
                       .arriving = std::sqrt(mean(of.arriving, of.calls)),
                       .leaving = std::sqrt(mean(of.leaving, of.calls)),
                       .adds = std::sqrt(mean(of.adds, of.calls)),
                       .amplifies = of.arriving > 0 ? std::sqrt(of.handed_on / of.arriving) : kNan,
                       .is_assumed = of.assumed > 0,
                       .share = mean(of.share, roots.at(root).with_error)}});
  }
  std::ranges::sort(listed, [](const auto& x, const auto& y) {
    return std::pair(-x.second.adds, x.first) < std::pair(-y.second.adds, y.first);
  });
  for (auto& [order, one] : listed) budget.modules.push_back(std::move(one));
  std::ranges::sort(unknown);
  for (auto& [order, name] : unknown) budget.unknown.push_back(std::move(name));
  std::vector<std::pair<std::size_t, DiffBudget::Root>> outermost;
  for (const auto& [root, of] : roots)
    outermost.push_back({of.order,
                         {.root = root,
                          .calls = of.calls,
                          .left_out = of.left_out,
                          .leaving = std::sqrt(mean(of.leaving, of.calls)),
                          .share_of_inputs = mean(of.from_inputs, of.with_error),
                          .share_not_traced = mean(of.not_traced, of.with_error)}});
  std::ranges::sort(outermost, {}, [](const auto& one) { return one.first; });
  for (auto& [order, one] : outermost) budget.roots.push_back(std::move(one));
  return budget;
}

BudgetSums make_budget(const Alignment& alignment, const Interner& interner, const Measures& measures) {
  BudgetSums sums;
  if (measures.source_a == nullptr || measures.source_b == nullptr) return sums;
  for (const LanePair& lane : alignment.lanes)
    if (!lane.is_by_content) walk(alignment, lane, interner, measures, sums);
  return sums;
}

}  // namespace tenscope::compare
