#include "arrow/events.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "kernels/parallel.hpp"
#include "report/series.hpp"

namespace tenscope::arrow {
namespace {

// A batch ends at so many rows, or behind the row with which its texts are this large.
constexpr std::size_t kMostRows = std::size_t{1} << 16;
constexpr std::size_t kMostTextBytes = std::size_t{64} << 20;

constexpr std::int64_t kLargestExact = std::int64_t{1} << 53;  // a double holds every integer up to it

std::size_t text_bytes_of(const Event& event) {
  const auto* text = std::get_if<std::string>(&event.value);
  return event.name.size() + event.site.size() + event.scope.size() + event.root.size() + event.cls.size() +
         event.task.size() + event.meta.size() + (text != nullptr ? text->size() : 0);
}

bool is_number_without_axes(const TensorRecord& tensor) {
  return tensor.shape.empty() && kind_of(tensor.dtype) != DTypeKind::Complex;
}

// Its number, with all digits, where `value` cannot hold it: an integer of more than 53 bits.
std::optional<std::string> digits_of(const EventRow& row) {
  if (const auto* big = std::get_if<BigInt>(&row.event.value)) return big->digits;
  std::int64_t number = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&row.event.value))
    number = *integer;
  else if (row.tensor != nullptr && is_number_without_axes(*row.tensor) && row.tensor->dtype == DType::I64)
    number = row.tensor->stats.exact_min;
  else if (row.tensor != nullptr && is_number_without_axes(*row.tensor) && row.tensor->dtype == DType::U64)
    if (const auto bits = static_cast<std::uint64_t>(row.tensor->stats.exact_min); bits > kLargestExact)
      return std::to_string(bits);
  if (number >= -kLargestExact && number <= kLargestExact) return std::nullopt;
  return std::to_string(number);
}

void fill_value(Column& column, const EventRow& row) {
  std::optional<double> number;
  if (row.tensor == nullptr || is_number_without_axes(*row.tensor)) number = report::number_of(row.event.value);
  if (const auto* big = std::get_if<BigInt>(&row.event.value)) number = std::strtod(big->digits.c_str(), nullptr);
  number ? column.add_double(*number) : column.add_null();
}

void fill_text(Column& column, const EventRow& row) {
  if (const auto* text = std::get_if<std::string>(&row.event.value))
    column.add_text(*text);
  else if (const auto digits = digits_of(row))
    column.add_text(*digits);
  else
    column.add_null();
}

void fill_type(Column& column, const EventRow& row) {
  constexpr std::string_view kWords[] = {"", "none", "bool", "int", "float", "int", "text", "tensor"};
  static_assert(std::size(kWords) == std::variant_size_v<EventValue>);
  const std::size_t which = row.event.value.index();
  which == 0 ? column.add_null() : column.add_text(kWords[which]);
}

void fill_fingerprint(Column& column, const EventRow& row) {
  row.tensor != nullptr ? column.add_text(row.tensor->fingerprint.hex()) : column.add_null();
}

void fill_shape(Column& column, const EventRow& row) {
  row.tensor != nullptr ? column.add_shape(row.tensor->shape) : column.add_null();
}

void add_word(Column& column, std::string_view word) { word.empty() ? column.add_null() : column.add_text(word); }

template <std::string Event::* kMember>
void fill_word(Column& column, const EventRow& row) {
  add_word(column, row.event.*kMember);
}

// Of the finite elements: nothing where there is none.
template <double Stats::* kMember>
void fill_statistic(Column& column, const EventRow& row) {
  const double value = row.tensor != nullptr ? row.tensor->stats.*kMember : std::nan("");
  std::isnan(value) ? column.add_null() : column.add_double(value);
}

template <std::int64_t Stats::* kMember>
void fill_count(Column& column, const EventRow& row) {
  row.tensor != nullptr ? column.add_int(row.tensor->stats.*kMember) : column.add_null();
}

constexpr EventField kFields[] = {
    {"rank", Type::Int32, false, [](Column& c, const EventRow& row) { c.add_int(row.writer.rank); }},
    {"writer", Type::Text, false, [](Column& c, const EventRow& row) { c.add_text(row.writer.folder); }},
    {"seq", Type::Int64, false,
     [](Column& c, const EventRow& row) { c.add_int(static_cast<std::int64_t>(row.event.seq)); }},
    {"time", Type::Time, false, [](Column& c, const EventRow& row) { c.add_int(row.event.time_ns); }},
    {"step", Type::Int64, false, [](Column& c, const EventRow& row) { c.add_int(row.event.step); }},
    {"call", Type::Int64, false, [](Column& c, const EventRow& row) { c.add_int(row.event.call); }},
    {"kind", Type::Text, false, [](Column& c, const EventRow& row) { c.add_text(to_string(row.event.kind)); }},
    {"name", Type::Text, false, [](Column& c, const EventRow& row) { c.add_text(row.event.name); }},
    {"type", Type::Text, true, fill_type},
    {"value", Type::Double, true, fill_value},
    {"text", Type::Text, true, fill_text},
    {"dtype", Type::Text, true,
     [](Column& c, const EventRow& row) { add_word(c, row.tensor != nullptr ? to_string(row.tensor->dtype) : ""); }},
    {"shape", Type::Shape, true, fill_shape},
    {"device", Type::Text, true,
     [](Column& c, const EventRow& row) { add_word(c, row.tensor != nullptr ? row.tensor->device : ""); }},
    {"stored", Type::Bool, true,
     [](Column& c, const EventRow& row) {
       row.tensor != nullptr ? c.add_bool(row.tensor->has_bytes()) : c.add_null();
     }},
    {"count", Type::Int64, true, fill_count<&Stats::count>},
    {"min", Type::Double, true, fill_statistic<&Stats::min>},
    {"max", Type::Double, true, fill_statistic<&Stats::max>},
    {"mean", Type::Double, true, fill_statistic<&Stats::mean>},
    {"std", Type::Double, true, fill_statistic<&Stats::std>},
    {"l2", Type::Double, true, fill_statistic<&Stats::l2>},
    {"abs_max", Type::Double, true, fill_statistic<&Stats::abs_max>},
    {"nan", Type::Int64, true, fill_count<&Stats::nan>},
    {"pos_inf", Type::Int64, true, fill_count<&Stats::pos_inf>},
    {"neg_inf", Type::Int64, true, fill_count<&Stats::neg_inf>},
    {"zero", Type::Int64, true, fill_count<&Stats::zero>},
    {"subnormal", Type::Int64, true, fill_count<&Stats::subnormal>},
    {"fingerprint", Type::Text, true, fill_fingerprint},
    {"io", Type::Text, true, [](Column& c, const EventRow& row) { add_word(c, row.event.io_word()); }},
    {"scope", Type::Text, true, fill_word<&Event::scope>},
    {"phase", Type::Text, true, [](Column& c, const EventRow& row) { add_word(c, row.event.phase_word()); }},
    {"root", Type::Text, true, fill_word<&Event::root>},
    {"cls", Type::Text, true, fill_word<&Event::cls>},
    {"site", Type::Text, true, fill_word<&Event::site>},
    {"thread", Type::Int64, false,
     [](Column& c, const EventRow& row) { c.add_int(static_cast<std::int64_t>(row.event.thread)); }},
    {"task", Type::Text, true, fill_word<&Event::task>},
    {"meta", Type::Text, true, fill_word<&Event::meta>},
};

}  // namespace

std::span<const EventField> event_fields() { return kFields; }

EventBatches::EventBatches(std::shared_ptr<const Reader> reader, std::vector<EventId> events, Layouts layouts)
    : reader_(std::move(reader)), events_(std::move(events)), layouts_(std::move(layouts)) {
  layouts_.resize(event_fields().size(), TextLayout::Plain);
}

EventBatches::~EventBatches() { is_stopped_ = true; }

Batch EventBatches::make(std::size_t begin, std::size_t end) const {
  const std::span<const EventField> fields = event_fields();
  Batch batch;
  batch.columns.reserve(fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i)
    batch.columns.emplace_back(fields[i].type, layouts_[i]).reserve(end - begin);
  std::size_t text_bytes = 0;
  for (std::size_t i = begin; i < end && text_bytes < kMostTextBytes && !is_stopped_; ++i) {
    const Event event = reader_->event(events_[i]);
    const EventRow row{event, reader_->writers()[reader_->writer_index(events_[i])],
                       std::get_if<TensorRecord>(&event.value)};
    for (std::size_t column = 0; column < fields.size(); ++column) fields[column].fill(batch.columns[column], row);
    text_bytes += text_bytes_of(event);
    ++batch.rows;
  }
  return batch;
}

// The system may have no thread to give: then the batch is made when it is asked for.
EventBatches::Piece EventBatches::start(std::size_t begin, std::size_t end) {
  const auto when = events_.size() > kMostRows ? std::launch::async | std::launch::deferred : std::launch::deferred;
  return {begin, end, std::async(when, [this, begin, end] { return make(begin, end); })};
}

void EventBatches::start_ahead() {
  const auto most = static_cast<std::size_t>(kernels::worker_count(events_.size() / kMostRows + 1, 8));
  while (pieces_.size() < most && next_ < events_.size()) {
    const std::size_t end = std::min(events_.size(), next_ + kMostRows);
    pieces_.push_back(start(next_, end));
    next_ = end;
  }
}

std::optional<Batch> EventBatches::next() {
  start_ahead();
  if (pieces_.empty()) return std::nullopt;
  Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  Batch batch = piece.batch.get();
  if (const std::size_t behind = piece.begin + batch.rows; behind < piece.end)
    pieces_.push_front(start(behind, piece.end));
  start_ahead();
  return batch;
}

std::vector<EventId> find_events(const Reader& reader, const Query& query, std::int64_t begin, std::int64_t end) {
  std::vector<EventId> events = reader.find(query);
  std::erase_if(events, [&](EventId id) { return reader.step(id) < begin || reader.step(id) >= end; });
  return events;
}

}  // namespace tenscope::arrow
