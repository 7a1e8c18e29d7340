#include "compare/content_group.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "compare/pairing_thresholds.hpp"

namespace tenscope::compare {
namespace {

Content make_content(const TensorRecord& record, const Item& item, std::size_t index) {
  const Stats& stats = record.stats;
  const auto finite = [](double value) { return std::isfinite(value) ? value : 0; };
  Content content;
  content.item = index;
  content.shape = without_ones(record.shape);
  content.count = stats.count;
  content.filled = stats.count - stats.zero - stats.neg_inf;
  content.l2 = finite(stats.l2);
  content.sum = finite(stats.mean) * static_cast<double>(stats.count - stats.nan - stats.pos_inf - stats.neg_inf);
  content.high = std::max(finite(stats.max), 0.0);
  content.low = std::min(finite(stats.min), 0.0);
  content.fingerprint = record.fingerprint;
  content.is_integer = kind_of(record.dtype) != DTypeKind::Float && kind_of(record.dtype) != DTypeKind::Complex;
  content.is_constant = stats.count > 0 && stats.min == stats.max && stats.nan + stats.pos_inf + stats.neg_inf == 0;
  content.is_parameter = item.io == Io::Param || item.io == Io::Buffer;
  return content;
}

bool is_same_content(const Content& x, const Content& y) {
  return x.is_integer == y.is_integer && x.filled == y.filled &&
         (x.fingerprint == y.fingerprint || distance(x, y) < pairing::kSameContent);
}

// By norm, so that equal contents stand together; then back into the order of recording.
std::vector<std::vector<std::size_t>> classes_of(const std::vector<Content>& contents) {
  constexpr std::size_t kNeighbours = 8;  // of about the same norm, that one content is compared with
  std::vector<std::size_t> order(contents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return contents[i].l2; });
  std::vector<std::vector<std::size_t>> classes;
  for (const std::size_t i : order) {
    bool is_placed = false;
    for (std::size_t back = 1; back <= std::min(classes.size(), kNeighbours) && !is_placed; ++back) {
      std::vector<std::size_t>& members = classes[classes.size() - back];
      if (!is_same_content(contents[i], contents[members.front()])) continue;
      members.push_back(i);
      is_placed = true;
    }
    if (!is_placed) classes.push_back({i});
  }
  for (std::vector<std::size_t>& members : classes) std::ranges::sort(members);
  std::ranges::sort(classes, {}, [](const auto& members) { return members.front(); });
  return classes;
}

}  // namespace

double distance(const Content& a, const Content& b) {
  constexpr double kTiny = 1e-30;
  const double l2 = std::max({a.l2, b.l2, kTiny}), peak = std::max({a.high - a.low, b.high - b.low, kTiny});
  return std::max({std::abs(a.l2 - b.l2) / l2, std::abs(a.sum - b.sum) / l2 / 2, std::abs(a.high - b.high) / peak / 2,
                   std::abs(a.low - b.low) / peak / 2});
}

ContentSide group_by_content(int number, const Lane& lane, const std::vector<std::int64_t>& partner,
                             const ContentSource& source) {
  ContentSide side{number, lane, {}, {}, {}};
  std::vector<Content> contents;
  for (std::size_t i = 0; i < lane.items.size(); ++i) {
    const Item& item = lane.items[i];
    if (!item.is_tensor() || !item.has_bytes || partner[i] >= 0) continue;
    if (item.io == Io::Grad || item.io == Io::GradInput || item.io == Io::GradOutput) continue;
    Content content = make_content(source.record(number, item), item, i);
    if (content.count > 0) contents.push_back(std::move(content));
  }
  for (const std::vector<std::size_t>& members : classes_of(contents)) {
    ContentGroup group;
    std::set<TextId> parameters;
    for (const std::size_t i : members) {
      const Content& content = contents[i];
      if (content.is_parameter) parameters.insert(lane.items[content.item].name);
      side.group_of[content.item] = side.groups.size();
      group.members.push_back(content);
    }
    group.has_parameter = !parameters.empty();
    group.is_tie = parameters.size() > 1;
    side.groups.push_back(std::move(group));
  }
  side.is_taken.assign(side.groups.size(), false);
  return side;
}

}  // namespace tenscope::compare
