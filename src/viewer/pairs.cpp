#include "viewer/pairs.hpp"

#include <limits>
#include <map>
#include <tuple>

namespace tenscope::viewer {

Pairs::Pairs(std::size_t events_a, std::size_t events_b) {
  const One nothing{.error = std::numeric_limits<double>::quiet_NaN()};
  pairs_[0].resize(events_a, nothing);
  pairs_[1].resize(events_b, nothing);
}

Pairs Pairs::by_names(const Side& a, const Catalog& of_a, const Side& b, const Catalog& of_b) {
  Pairs pairs(a.event_count(), b.event_count());
  const auto join = [&](EventId x, EventId y) {
    pairs.pairs_[0][x].partner = y;
    pairs.pairs_[1][y].partner = x;
  };
  if (a.reader() == nullptr && b.reader() == nullptr && a.event_count() == 1 && b.event_count() == 1) {
    join(0, 0);
    return pairs;
  }
  for (const TextId name : of_a.names()) {
    const std::vector<EventId>* others = of_b.find(of_a.text(name));
    if (others == nullptr) continue;
    std::map<std::tuple<std::int64_t, std::int64_t, int>, EventId> places;
    for (const EventId y : *others) places.try_emplace({of_b[y].step, of_b[y].call, b.rank_of(y)}, y);
    for (const EventId x : of_a.events_of(name)) {
      const auto found = places.find({of_a[x].step, of_a[x].call, a.rank_of(x)});
      if (found == places.end()) continue;
      join(x, found->second);
      places.erase(found);
    }
  }
  return pairs;
}

Pairs Pairs::of_weights(const compare::CheckpointDiff& diff, const Side& a, const Catalog& of_a, const Side& b,
                        const Catalog& of_b) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Pairs pairs(a.event_count(), b.event_count());
  const auto event = [](const Catalog& catalog, const std::string& name) -> std::optional<EventId> {
    const std::vector<EventId>* found = catalog.find(name);
    return found != nullptr ? std::optional(found->front()) : std::nullopt;
  };
  for (const compare::WeightPair& one : diff.pairs) {
    const PairVerdict verdict = one.is_changed   ? PairVerdict::Starts
                                : one.error == 0 ? PairVerdict::Equal
                                                 : PairVerdict::Noise;
    pairs.add({.a = event(of_a, one.a.name), .b = event(of_b, one.b.name), .verdict = verdict, .error = one.error});
  }
  for (const compare::WeightTensor& one : diff.only_a)
    pairs.add({.a = event(of_a, one.name), .b = {}, .verdict = PairVerdict::Alone, .error = kNan});
  for (const compare::WeightTensor& one : diff.only_b)
    pairs.add({.a = {}, .b = event(of_b, one.name), .verdict = PairVerdict::Alone, .error = kNan});
  return pairs;
}

void Pairs::add(const DiffPair& pair) {
  const auto put = [&](std::size_t side, std::optional<EventId> event, std::optional<EventId> partner) {
    if (!event || *event >= pairs_[side].size()) return;
    if (partner && *partner >= pairs_[1 - side].size()) partner.reset();
    pairs_[side][*event] = {partner, static_cast<int>(pair.verdict), pair.error};
  };
  put(0, pair.a, pair.b);
  put(1, pair.b, pair.a);
}

const Pairs::One& Pairs::of(std::size_t side, EventId event) const {
  static const One nothing{.error = std::numeric_limits<double>::quiet_NaN()};
  return event < pairs_[side].size() ? pairs_[side][event] : nothing;
}

}  // namespace tenscope::viewer
