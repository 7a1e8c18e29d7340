#include "viewer/catalog.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/parallel.hpp"
#include "tenscope/error.hpp"

namespace tenscope::viewer {
namespace {

// Some events, with texts of their own: read by one thread while others read others.
struct Stretch {
  Texts texts;
  std::vector<EventRow> rows;
};

EventRow row_of(const Event& event, Texts& texts) {
  EventRow row;
  row.step = event.step;
  row.call = event.call;
  row.name = texts.id(event.name);
  row.scope = texts.id(event.scope);
  row.root = texts.id(event.root);
  row.cls = texts.id(event.cls);
  row.kind = event.kind;
  row.io = event.io;
  row.phase = event.phase;
  const auto number = [&](double value) {
    row.shown = Shown::Number;
    row.size = value;
  };
  if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) {
    row.shown = Shown::Tensor;
    row.dtype = tensor->dtype;
    row.shape = texts.id(fmt::format("{}", fmt::join(tensor->shape, "×")));
    row.size = tensor->stats.abs_max;
    const std::int64_t bad = tensor->stats.nan + tensor->stats.pos_inf + tensor->stats.neg_inf;
    row.bad = static_cast<std::uint32_t>(std::min<std::int64_t>(bad, std::numeric_limits<std::uint32_t>::max()));
  } else if (const auto* truth = std::get_if<bool>(&event.value)) {
    number(*truth ? 1 : 0);
  } else if (const auto* integer = std::get_if<std::int64_t>(&event.value)) {
    number(static_cast<double>(*integer));
  } else if (const auto* real = std::get_if<double>(&event.value)) {
    number(*real);
    row.bad = std::isfinite(*real) ? 0 : 1;
  } else if (!std::holds_alternative<std::monostate>(event.value)) {
    row.shown = Shown::Text;
  }
  return row;
}

}  // namespace

Texts::Texts(const Texts& other) {
  for (const std::string& text : other.texts_) id(text);
}

TextId Texts::id(std::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  texts_.emplace_back(text);
  const auto id = static_cast<TextId>(texts_.size() - 1);
  ids_.emplace(texts_.back(), id);
  return id;
}

Rows::Rows(const Rows& other) : blocks_(other.blocks_), size_(other.size_) {
  if (size_ % kBlock != 0) blocks_.back() = std::make_shared<std::vector<EventRow>>(*blocks_.back());
}

void Rows::push_back(const EventRow& row) {
  if (size_ % kBlock == 0) {
    blocks_.push_back(std::make_shared<std::vector<EventRow>>());
    if (size_ > 0) blocks_.back()->reserve(kBlock);
  }
  blocks_.back()->push_back(row);
  ++size_;
}

Catalog::Catalog(const Side& side, const Catalog* before, const Progress& progress)
    : texts_(before != nullptr ? before->texts_ : Texts()) {
  const std::size_t total = std::max<std::size_t>(1, side.event_count());
  // Of a single writer that has gone on, only what has come is looked at.
  const bool is_longer = before != nullptr && side.writer_count() == 1 && before->counts_.size() == 1 &&
                         before->counts_[0] <= side.event_count(0);
  if (is_longer) rows_ = Rows(before->rows_);
  std::size_t first_before = 0;
  for (std::size_t writer = 0; writer < side.writer_count(); ++writer) {
    const std::size_t count = side.event_count(writer);
    std::size_t known = before != nullptr && writer < before->counts_.size() ? before->counts_[writer] : 0;
    if (known > count) known = 0;  // a ring has dropped its first events: all of them have moved
    const std::size_t from = is_longer ? 0 : rows_.size();
    for (std::size_t i = 0; !is_longer && i < known; ++i) rows_.push_back(before->rows_[first_before + i]);
    if (before != nullptr && writer < before->counts_.size()) first_before += before->counts_[writer];
    const EventId begin = side.first_event(writer);
    read(side, static_cast<EventId>(begin + known), static_cast<EventId>(begin + count), [&](std::size_t done) {
      if (progress) progress(static_cast<double>(from + known + done) / static_cast<double>(total));
    });
    counts_.push_back(count);
  }
  if (!is_longer) {
    index(0);
    return;
  }
  names_ = before->names_;
  events_ = before->events_;
  steps_ = before->steps_;
  for (const TextId name : names_) ids_.emplace(texts_[name], name);
  index(before->rows_.size());
}

void Catalog::read(const Side& side, EventId begin, EventId end, const std::function<void(std::size_t)>& progress) {
  constexpr std::size_t kStretch = 4096;
  const std::size_t count = end - begin, stretches = (count + kStretch - 1) / kStretch;
  std::size_t done = 0;
  kernels::make_in_order(
      stretches, kernels::worker_count(stretches, 8),
      [&](std::size_t i) {
        Stretch stretch;
        const std::size_t last = std::min(count, (i + 1) * kStretch);
        for (std::size_t at = i * kStretch; at < last; ++at) {
          try {
            stretch.rows.push_back(row_of(side.event(static_cast<EventId>(begin + at)), stretch.texts));
          } catch (const Error&) {
            stretch.rows.emplace_back().is_unreadable = true;
          }
        }
        return stretch;
      },
      [&](const Stretch& stretch) {
        std::vector<TextId> ids(stretch.texts.size());
        for (TextId i = 0; i < ids.size(); ++i) ids[i] = texts_.id(stretch.texts[i]);
        for (EventRow row : stretch.rows) {
          for (TextId EventRow::* text :
               {&EventRow::name, &EventRow::scope, &EventRow::root, &EventRow::cls, &EventRow::shape})
            row.*text = ids[row.*text];
          rows_.push_back(row);
        }
        done += stretch.rows.size();
        progress(done);
      });
}

void Catalog::index(std::size_t from) {
  for (std::size_t i = from; i < rows_.size(); ++i) {
    const EventRow& row = rows_[i];
    if (row.is_unreadable) continue;
    const bool is_of_step =
        row.kind != EventKind::Step && row.kind != EventKind::Note && row.kind != EventKind::Dropped;
    if (is_of_step && (steps_.empty() || steps_.back() != row.step)) steps_.push_back(row.step);
    if (!row.is_value()) continue;
    std::vector<EventId>& events = events_[row.name];
    if (events.empty()) {
      names_.push_back(row.name);
      ids_.emplace(texts_[row.name], row.name);
    }
    events.push_back(static_cast<EventId>(i));
  }
  std::ranges::sort(steps_);
  steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
}

const std::vector<EventId>& Catalog::events_of(TextId name) const { return events_.at(name); }

const std::vector<EventId>* Catalog::find(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? nullptr : &events_.at(found->second);
}

}  // namespace tenscope::viewer
