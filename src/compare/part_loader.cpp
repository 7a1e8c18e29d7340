#include "compare/part_loader.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "store/shards.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {

TensorData PartLoader::load(int run, const PartTensor& part) const {
  return part.is_declared ? store::assemble(reader(run), part.events) : reader(run).tensor(part.events.front());
}

std::optional<PartSet> PartLoader::parts_of(int run, const SlotParts& slot) const {
  PartSet set{.ranks = slot.ranks.size(), .passes = slot.passes, .parts = {}};
  set.has_bytes = std::ranges::all_of(slot.items, &Item::has_bytes);
  const bool is_declared = std::ranges::any_of(slot.items, [](const Item* item) { return item->part != 0; });
  const DType dtype = slot.items.front()->dtype;
  if (!std::ranges::all_of(slot.items, [&](const Item* item) { return item->dtype == dtype; })) return std::nullopt;
  if (!is_declared) {
    for (std::size_t i = 0; i < slot.items.size(); ++i) {
      const Item& item = *slot.items[i];
      const auto record = std::get<TensorRecord>(reader(run).event(item.event).value);
      set.parts.push_back({{item.event}, &item, {slot.ranks[i / slot.passes]}, record.shape, false});
    }
    return set;
  }
  // In each pass, parts that say themselves how they belong together; more than one whole where there are replicas.
  std::vector<std::vector<PartTensor>> by_pass(slot.passes);
  for (std::size_t pass = 0; pass < slot.passes; ++pass) {
    std::map<TextId, std::size_t> seen;  // how often each part was met
    std::vector<PartTensor>& wholes = by_pass[pass];
    for (std::size_t rank = 0; rank < slot.ranks.size(); ++rank) {
      const Item& item = *slot.items[rank * slot.passes + pass];
      const std::size_t whole = seen[item.part]++;
      if (whole == wholes.size()) wholes.push_back({{}, &item, {}, {}, true});
      wholes[whole].events.push_back(item.event);
      wholes[whole].ranks.push_back(slot.ranks[rank]);
    }
    for (PartTensor& whole : wholes) {
      try {
        whole.shape = store::whole_parts(reader(run), whole.events).shape;
      } catch (const Error&) {
        return std::nullopt;
      }
    }
    if (wholes.size() != by_pass.front().size()) return std::nullopt;
  }
  set.ranks = by_pass.front().size();
  for (std::size_t whole = 0; whole < set.ranks; ++whole)
    for (std::vector<PartTensor>& pass : by_pass) set.parts.push_back(std::move(pass[whole]));
  return set;
}

std::vector<TensorData> PartLoader::load_all(int run, const PartSet& set) const {
  std::vector<TensorData> data;
  for (const PartTensor& part : set.parts) data.push_back(load(run, part));
  return data;
}

HostTensor whole_of(const PartSet& set, const std::vector<TensorData>& parts, const Arrangement& how) {
  std::vector<TensorView> views;
  for (const TensorData& one : parts) views.push_back(one.view);
  return assemble(how.assembly, in_order(how, set.ranks, set.passes, views));
}

}  // namespace tenscope::compare
