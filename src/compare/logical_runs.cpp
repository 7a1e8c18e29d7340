// Overview. What two runs recorded becomes two timelines of one process each, in the modules and the order of the
// skeleton (logical_slots.cpp), with the whole tensors that their parts make (logical_match.cpp). From there on they
// are compared as any two runs are. What one run alone has is left out: it was not seen, and that is no difference.
#include "compare/logical_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "compare/align.hpp"
#include "compare/call_key.hpp"
#include "compare/off_parts.hpp"
#include "compare/part_summary.hpp"
#include "kernels/sketch.hpp"
#include "kernels/summarize.hpp"
#include "store/run_folder.hpp"

namespace tenscope::compare {
namespace {

constexpr EventId kMade = EventId{1} << 31;  // ids of tensors that were put together

bool has_one_value(const PartSet& set) {
  const PartTensor& first = set.parts.front();
  return std::ranges::all_of(set.parts, [&](const PartTensor& part) {
    return !part.is_declared && part.item->fingerprint == first.item->fingerprint;
  });
}

// Of a whole whose bytes were not kept.
Fingerprint identity_of(const PartSet& set) {
  Fingerprint result{.low = 1, .high = 1};
  for (const PartTensor& part : set.parts)
    for (const std::uint64_t half : {part.item->fingerprint.low, part.item->fingerprint.high}) {
      result.low = mix_hash(result.low, half);
      result.high = mix_hash(result.high ^ half, result.low);
    }
  return result;
}

bool is_all_same(const Arrangement& how) {
  const Assembly& assembly = how.assembly;
  return assembly.shaped_as.empty() && !assembly.has(Fold::How::Join) && !assembly.has(Fold::How::Sum) &&
         !assembly.has(Fold::How::Mean);
}

// The value of one item, with the names of another.
void copy_value(Item& item, const Item& from) {
  item.event = from.event;
  item.value = from.value;
  item.dtype = from.dtype;
  item.has_bytes = from.has_bytes;
  item.is_neutral = from.is_neutral;
  item.shape = from.shape;
  item.text = from.text;
  item.fingerprint = from.fingerprint;
  item.integer = from.integer;
  item.number = from.number;
  item.abs_max = from.abs_max;
}

// A number that ranks or passes have each: where they differ, their mean.
void set_number(Item& item, const SlotParts& parts) {
  copy_value(item, *parts.items.front());
  const bool are_floats =
      std::ranges::all_of(parts.items, [](const Item* one) { return one->value == ValueKind::Float; });
  const bool are_same =
      std::ranges::all_of(parts.items, [&](const Item* one) { return is_same_value(*one, *parts.items.front()); });
  if (are_same || !are_floats) return;
  item.number = 0;
  for (const Item* one : parts.items) item.number += one->number / static_cast<double>(parts.items.size());
}

class Builder {
 public:
  Builder(LogicalRuns& runs, Interner& interner) : runs_(runs), table_(*runs.table), interner_(interner) {}

  void build() {
    for (const int run : {0, 1}) {
      for (const Item& item : runs_.lanes[static_cast<std::size_t>(run)].lanes.front().lanes.front().items)
        if (item.kind == EventKind::Note) lane_of(run).items.push_back(item);
      for (const auto& [key, slot] : table_.slots())
        if (!slot.runs[static_cast<std::size_t>(run)].is_missing()) ++runs_.totals[static_cast<std::size_t>(run)];
    }
    runs_.has_results = std::ranges::any_of(
        table_.slots(), [](const auto& entry) { return entry.first.io == Io::Output || entry.first.io == Io::None; });
    std::optional<std::int64_t> step_of_gradients;
    for (const Place& place : table_.places()) {
      if (!place.key) {
        add_call(place);
        continue;
      }
      if (place.key->io == Io::Grad && step_of_gradients != place.key->step) {
        step_of_gradients = place.key->step;
        add_gradients_of_others(place);
      }
      add_tensor(place);
    }
    list_layouts();
    for (const Timeline& timeline : runs_.timelines)
      for (const Item& item : timeline.lanes.front().items)
        if (item.is_tensor() && kind_of(item.dtype) == DTypeKind::Float && item_size(item.dtype) < 4)
          runs_.roundoff = std::max(runs_.roundoff, unit_roundoff(item.dtype));
  }

 private:
  Lane& lane_of(int run) {
    std::vector<Lane>& lanes = runs_.timelines[static_cast<std::size_t>(run)].lanes;
    return lanes.empty() ? lanes.emplace_back() : lanes.front();
  }

  void add_call(const Place& place) {
    for (const int run : {0, 1})
      if (table_.is_called(run, place.node, place.item->step)) lane_of(run).items.push_back(*place.item);
  }

  // A parameter's gradient in one run only says something where both have the parameter.
  bool is_telling(const SlotKey& key) const {
    if (key.io != Io::Grad) return false;
    const std::string_view tail = parameter_of_gradient(interner_.text(key.tail));
    const SlotKey parameter{.node = key.node, .tail = interner_.text(tail), .io = Io::Param, .phase = Phase::Init};
    const auto found = table_.slots().find(parameter);
    return found != table_.slots().end() && !found->second.runs[0].is_missing() && !found->second.runs[1].is_missing();
  }

  void add_tensor(const Place& place) { add_tensor(*place.key, *place.item); }

  void add_tensor(const SlotKey& key, const Item& named) {
    const auto found = table_.slots().find(key);
    if (found == table_.slots().end()) return;
    const Slot& slot = found->second;
    std::array<Item, 2> items = {named, named};
    for (Item& item : items) {
      item.part = 0;
      if (item.io == Io::Grad) item.phase = Phase::Backward;
    }
    const bool is_on_both = !slot.runs[0].is_missing() && !slot.runs[1].is_missing();
    if (!is_on_both) {
      const std::size_t run = slot.runs[0].is_missing() ? 1 : 0;
      if (slot.runs[run].is_missing() || !is_telling(key)) return;
      copy_value(items[run], *slot.runs[run].items.front());
      lane_of(static_cast<int>(run)).items.push_back(items[run]);
      return;
    }
    if (!set_values(key, slot, items)) return;
    for (const int run : {0, 1}) lane_of(run).items.push_back(items[static_cast<std::size_t>(run)]);
  }

  bool set_values(const SlotKey& key, const Slot& slot, std::array<Item, 2>& items) {
    const bool are_tensors = slot.runs[0].items.front()->is_tensor() && slot.runs[1].items.front()->is_tensor();
    if (!are_tensors) {
      for (const std::size_t run : {0U, 1U}) set_number(items[run], slot.runs[run]);
      return true;
    }
    const auto matched = runs_.slots.find(key);
    if (matched != runs_.slots.end() && matched->second.choice) {
      if (is_of_another_stage(key, *matched->second.choice)) return false;
      if (!is_certain(key, matched->second) || !is_known(matched->second) ||
          may_be_weighted_mean(key, matched->second)) {
        leave_out(key, *slot.runs[0].items.front());
        return false;
      }
      for (const std::size_t run : {0U, 1U}) runs_.sources[run]->set_value(items[run], matched->second, interner_);
      return true;
    }
    // No whole can be made: of parameters and of the model's inputs that is a difference, of others it is not known.
    const bool is_whole =
        !runs_.are_ranks_missing && (slot.runs[0].items.size() == 1 || slot.runs[1].items.size() == 1);
    const bool is_certain =
        is_whole && matched != runs_.slots.end() && is_input_or_parameter(key) && !is_of_another_stage(key, {});
    if (!is_certain) {
      leave_out(key, *slot.runs[0].items.front());
      return false;
    }
    for (const std::size_t run : {0U, 1U}) copy_value(items[run], *slot.runs[run].items.front());
    return true;
  }

  void leave_out(const SlotKey& key, const Item& item) {
    runs_.not_assembled.emplace_back(interner_.text(item.name));
    runs_.is_plain_left_out |= key.node < 0;
  }

  // Not what is made of parts whose bytes were not kept, where their summaries do not tell: a maximum, say.
  bool is_known(const MatchedSlot& slot) const {
    return (slot.sets[0].has_bytes && slot.sets[1].has_bytes) || runs_.sources[0]->summary_without_bytes(slot);
  }

  // A loss that a module returns for its part of a batch that is not cut evenly: what weighs the parts is not known.
  bool may_be_weighted_mean(const SlotKey& key, const MatchedSlot& slot) const {
    if (slot.kind != PartKind::Loss || key.io == Io::Loss || slot.choice->agrees) return false;
    return std::ranges::any_of(runs_.slots, [&](const auto& entry) {
      const auto& [other, given] = entry;
      const bool is_batch = other.io == Io::Input && other.step == key.step && is_outermost(other);
      return is_batch && std::ranges::any_of(given.sets, [](const PartSet& set) {
               return std::ranges::any_of(
                   set.parts, [&](const PartTensor& part) { return part.shape != set.parts.front().shape; });
             });
    });
  }

  // Where neither run is known to have a parameter whole, and nothing says how its parts lie, it is not known whether
  // they differ: ranks may have experts of their own under the same name.
  bool is_certain(const SlotKey& key, const MatchedSlot& slot) const {
    const bool is_of_parameter = key.io == Io::Param || key.io == Io::Grad;
    if (!is_of_parameter || slot.choice->agrees || slot.choice->is_by_kin) return true;
    for (const std::size_t run : {0U, 1U}) {
      const PartSet& set = slot.sets[run];
      const bool is_of_all_ranks =
          set.parts.size() > 1 || set.parts.front().is_declared || runs_.lanes[run].lanes.size() == 1;
      if ((set.parts.size() == 1 || has_one_value(set)) && is_of_all_ranks) return true;
    }
    return false;
  }

  // In the skeleton, or in a run of which a rank's outermost module stands for one inside the skeleton's.
  bool is_outermost(const SlotKey& key) const {
    if (key.node < 0) return false;
    if (table_.tree().nodes[static_cast<std::size_t>(key.node)].parent < 0) return true;
    return std::ranges::any_of(table_.slots().at(key).runs, [](const SlotParts& parts) {
      return std::ranges::any_of(parts.items, [](const Item* item) { return item->scope == 0; });
    });
  }

  bool is_input_or_parameter(const SlotKey& key) const {
    return key.io == Io::Param || key.io == Io::Grad || (key.io == Io::Input && is_outermost(key));
  }

  // What goes into and comes out of a stage of a pipeline is not what goes into and comes out of the model.
  bool is_of_another_stage(const SlotKey& key, const Choice& choice) const {
    const bool has_stages = !table_.partial_ranks(0).empty() || !table_.partial_ranks(1).empty();
    return has_stages && is_outermost(key) && key.io != Io::Param && key.io != Io::Grad && !choice.agrees;
  }

  // Gradients that the skeleton's run does not have, and the other has.
  void add_gradients_of_others(const Place& at) {
    std::set<SlotKey> listed;
    for (const auto& [key, slot] : table_.slots()) {
      const auto skeleton = static_cast<std::size_t>(table_.skeleton_run());
      if (key.io != Io::Grad || key.step != at.key->step || !slot.runs[skeleton].is_missing()) continue;
      const Item* other = slot.runs[1 - skeleton].is_missing() ? nullptr : slot.runs[1 - skeleton].items.front();
      if (other == nullptr) continue;
      Item named = *other;
      const ModuleNode& node = table_.tree().nodes[static_cast<std::size_t>(key.node)];
      named.root = node.root;
      named.scope = interner_.text(node.path);
      named.name = interner_.text(join_path(node.path, interner_.text(key.tail)));
      named.call = at.item->call;
      named.thread = at.item->thread;
      add_tensor(key, named);
    }
  }

  void list_layouts() {
    std::map<std::tuple<std::string, std::string, std::string>, std::size_t> counts;
    for (const auto& [key, slot] : runs_.slots) {
      if (!slot.choice) continue;
      const std::string a = slot.choice->how[0].assembly.in_words(), b = slot.choice->how[1].assembly.in_words();
      if (a.empty() && b.empty()) continue;
      const std::string path = key.node < 0 ? "" : table_.tree().nodes[static_cast<std::size_t>(key.node)].path;
      ++counts[{join_path(without_numbers(path), interner_.text(key.tail)), a, b}];
    }
    for (const auto& [what, count] : counts)
      runs_.layouts.push_back({std::get<0>(what), std::get<1>(what), std::get<2>(what), count});
  }

  LogicalRuns& runs_;
  const SlotTable& table_;
  Interner& interner_;
};

}  // namespace

void LogicalSource::set_value(Item& item, const MatchedSlot& slot, Interner& interner) {
  const auto side = static_cast<std::size_t>(run_);
  const PartSet& set = slot.sets[side];
  const bool is_scaled = run_ == 1 && slot.choice->factor != 1;
  const bool is_odd = set.parts.size() > 1 && slot.choice->is_sum_missing;  // the report looks at its parts
  if (is_all_same(slot.choice->how[side]) && has_one_value(set) && !is_scaled && !is_odd) {
    copy_value(item, *set.parts.front().item);
    return;
  }
  Whole& made = wholes_.emplace_back();
  made.slot = &slot;
  if (!set.has_bytes) {
    made.record = *summary_without_bytes(slot);
    set_tensor(item, made.record, interner);
    item.fingerprint = identity_of(set);  // the same where all parts are
  } else {
    const HostTensor whole = make(slot);
    const Summary summary = kernels::summarize(whole.view());
    made.record = {.dtype = whole.dtype,
                   .shape = whole.shape,
                   .device = "cpu",
                   .fingerprint = summary.fingerprint,
                   .stats = summary.stats,
                   .blob = BlobRef{},
                   .file = {}};
    set_tensor(item, made.record, interner);
  }
  item.event = kMade | static_cast<EventId>(wholes_.size() - 1);
}

// In what does not follow from the parts' summaries it is like the other run's.
std::optional<TensorRecord> LogicalSource::summary_without_bytes(const MatchedSlot& slot) const {
  std::array<std::optional<TensorRecord>, 2> both;
  for (const int run : {0, 1}) {
    const auto side = static_cast<std::size_t>(run);
    const PartSet& set = slot.sets[side];
    const Arrangement& how = slot.choice->how[side];
    if (set.has_bytes)
      both[side] = summary_of(whole_of(set, loader_.load_all(run, set), how));
    else
      both[side] = summary_of(set, part_summaries(loader_.reader(run), set), how);
    if (!both[side]) return std::nullopt;
  }
  if (slot.choice->factor != 1) both[1] = scale_summary(*both[1], slot.choice->factor);
  complete_summaries(*both[0], *both[1]);
  TensorRecord& own = *both[static_cast<std::size_t>(run_)];
  own.blob.reset();
  own.file.clear();
  return own;
}

HostTensor LogicalSource::make(const MatchedSlot& slot) const {
  const auto side = static_cast<std::size_t>(run_);
  const PartSet& set = slot.sets[side];
  HostTensor whole = whole_of(set, loader_.load_all(run_, set), slot.choice->how[side]);
  return run_ == 1 && slot.choice->factor != 1 ? scaled(whole.view(), slot.choice->factor) : whole;
}

TensorRecord LogicalSource::record(const Item& item) const {
  return (item.event & kMade) == 0 ? recorded_.record(item) : wholes_[item.event & ~kMade].record;
}

TensorData LogicalSource::data(const Item& item) const {
  if ((item.event & kMade) == 0) return recorded_.data(item);
  auto whole = std::make_shared<HostTensor>(make(*wholes_[item.event & ~kMade].slot));
  const TensorView view = whole->view();
  return {view, std::move(whole)};
}

std::string LogicalSource::meta(const Item& item) const {
  return (item.event & kMade) == 0 ? recorded_.meta(item) : std::string();
}

std::optional<Sketch> LogicalSource::sketch(const Item& item) const {
  if ((item.event & kMade) == 0) return recorded_.sketch(item);
  const Whole& whole = wholes_[item.event & ~kMade];
  if (!whole.record.has_bytes()) return whole.record.sketch ? std::optional(*whole.record.sketch) : std::nullopt;
  return kernels::sketch(make(*whole.slot).view());
}

std::uint64_t LogicalSource::part_id(const Item& item) const {
  return (item.event & kMade) == 0 ? recorded_.part_id(item) : 0;
}

const MatchedSlot* LogicalSource::slot_of(const Item& item) const {
  return (item.event & kMade) == 0 ? nullptr : wholes_[item.event & ~kMade].slot;
}

std::vector<DiffPart> LogicalRuns::off_parts(const Item& a, const Item& b) const {
  for (const int run : {1, 0}) {
    const auto side = static_cast<std::size_t>(run);
    const MatchedSlot* slot = sources[side]->slot_of(run == 0 ? a : b);
    if (slot == nullptr || !slot->sets[0].has_bytes || !slot->sets[1].has_bytes) continue;
    const TensorData other = sources[1 - side]->data(run == 0 ? b : a);
    const double factor = run == 1 ? slot->choice->factor : 1;
    const RecordedPieces pieces(*loader, run, slot->sets[side], slot->choice->how[side]);
    auto found = pieces.find_off(other.view, factor);
    if (!found.empty()) return found;
  }
  return {};
}

std::optional<UpdateError> LogicalRuns::measure_update(const UpdateItems& a, const UpdateItems& b) const {
  std::optional<RecordedPieces> pieces;
  for (const int run : {1, 0}) {
    const auto side = static_cast<std::size_t>(run);
    const MatchedSlot* made = sources[side]->slot_of(*(run == 0 ? a : b).after);
    if (made == nullptr || !made->sets[side].has_bytes) continue;
    pieces.emplace(*loader, run, made->sets[side], made->choice->how[side]);
    if (pieces->size() > 1) break;
  }
  if (!pieces || pieces->size() < 2) return std::nullopt;
  using Parts = std::vector<std::vector<double>>;
  std::array<std::array<Parts, 3>, 2> cut;
  for (const std::size_t run : {0U, 1U}) {
    const UpdateItems& items = run == 0 ? a : b;
    const std::array<const Item*, 3> all = {items.before, items.after, items.gradient};
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == nullptr || all[i]->shape != a.after->shape || !all[i]->has_bytes) return std::nullopt;
      cut[run][i] = pieces->cut(sources[run]->data(*all[i]).view);
    }
  }
  std::optional<UpdateError> worst;
  for (std::size_t part = 0; part < pieces->size(); ++part) {
    std::array<std::array<HostTensor, 3>, 2> tensors;
    for (const std::size_t run : {0U, 1U})
      for (const std::size_t i : {0U, 1U, 2U})
        tensors[run][i] = tensor_of(cut[run][i][part], {std::ssize(cut[run][i][part])}, a.after->dtype);
    const auto update = [&](std::size_t run) {
      return UpdateTensors{tensors[run][0].view(), tensors[run][1].view(), tensors[run][2].view()};
    };
    const UpdateError error = compare::measure_update(update(0), update(1));
    if (!worst || (error.is_mistake() && error.typical > worst->typical)) worst = error;
  }
  return worst;
}

DiffEvent LogicalRuns::event_of(int run, const Item& item, const Interner& interner) const {
  const auto side = static_cast<std::size_t>(run);
  const MatchedSlot* slot = sources[side]->slot_of(item);
  const Item* shown = slot == nullptr ? nullptr : slot->sets[side].parts.front().item;
  std::optional<int> rank;
  if (shown != nullptr && lanes[side].lanes.size() > 1) rank = slot->sets[side].parts.front().ranks.front();
  if (shown == nullptr) {
    const Reader& reader = loader->reader(run);
    const Event event = reader.event(item.event);
    if (lanes[side].lanes.size() > 1) rank = reader.writers()[reader.writer_index(item.event)].rank;
    return {.name = event.name, .step = event.step, .call = event.call, .rank = rank};
  }
  return {.name = std::string(interner.text(shown->name)), .step = shown->step, .call = shown->call, .rank = rank};
}

LogicalRuns make_logical_runs(const Reader& a, const Reader& b, Timeline timeline_a, Timeline timeline_b,
                              Interner& interner, const std::vector<std::string>& map) {
  LogicalRuns runs;
  runs.lanes = {split_lanes(std::move(timeline_a), a, interner), split_lanes(std::move(timeline_b), b, interner)};
  for (const auto& [reader, lanes] : {std::pair(&a, &runs.lanes[0]), std::pair(&b, &runs.lanes[1])})
    if (std::ssize(lanes->lanes) < store::read_run_file(reader->path()).world_size) runs.are_ranks_missing = true;
  runs.loader = std::make_unique<PartLoader>(std::array<const Reader*, 2>{&a, &b});
  const auto match = [&](bool are_passes_joined) {
    runs.table = std::make_unique<SlotTable>(runs.lanes, interner, map, are_passes_joined);
    runs.slots = match_slots(*runs.table, *runs.loader);
    return part_that_agrees(runs.slots);
  };
  // Passes through the model in a step are compared one by one, or all of a step are put together: whichever agrees.
  const double one_by_one = match(false);
  const bool has_passes = runs.table->most_passes(0) > 1 || runs.table->most_passes(1) > 1;
  const bool is_same_number = runs.table->most_passes(0) == runs.table->most_passes(1);
  if (has_passes && !(one_by_one == 1 && is_same_number)) {
    const double together = match(true);
    if (is_same_number && together <= one_by_one) match(false);
  }
  for (const int run : {0, 1})
    runs.sources[static_cast<std::size_t>(run)] = std::make_unique<LogicalSource>(run, *runs.loader);
  Builder(runs, interner).build();
  return runs;
}

}  // namespace tenscope::compare
