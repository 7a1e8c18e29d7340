#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "arrow/column.hpp"
#include "tenscope/reader.hpp"

// Overview: the events of a run as a table, a row each, made of batches of bounded size. docs/frames.md says what
// stands in which column.
namespace tenscope::arrow {

struct EventRow {
  const Event& event;
  const WriterInfo& writer;
  const TensorRecord* tensor;  // null: no tensor
};

struct EventField {
  std::string_view name;
  Type type;
  bool is_nullable;
  void (*fill)(Column& column, const EventRow& row);
};

std::span<const EventField> event_fields();  // the columns, in their order

// The layout of each column's texts, one for each field; empty: Plain for all.
using Layouts = std::vector<TextLayout>;

struct Batch {
  std::size_t rows = 0;
  std::vector<Column> columns;  // one for each field
};

// Makes the batches of a table one after the other, some ahead of the reader on other threads where there are many
// rows. Not for several threads at once. `reader` is kept.
class EventBatches {
 public:
  EventBatches(std::shared_ptr<const Reader> reader, std::vector<EventId> events, Layouts layouts = {});
  ~EventBatches();
  EventBatches(const EventBatches&) = delete;
  EventBatches& operator=(const EventBatches&) = delete;

  std::optional<Batch> next();  // nothing at the end. Throws Corrupt, Io, Unsupported

 private:
  struct Piece {
    std::size_t begin, end;
    std::future<Batch> batch;  // of as many of these events as are not too large together
  };
  Piece start(std::size_t begin, std::size_t end);
  void start_ahead();
  Batch make(std::size_t begin, std::size_t end) const;

  std::shared_ptr<const Reader> reader_;
  std::vector<EventId> events_;
  Layouts layouts_;
  std::size_t next_ = 0;  // the first event that is in no piece yet
  std::atomic<bool> is_stopped_{false};
  std::deque<Piece> pieces_;  // last, so that what is being made ends first
};

// Which events of a reader: those of `query` whose step lies in [begin, end).
std::vector<EventId> find_events(const Reader& reader, const Query& query, std::int64_t begin = INT64_MIN,
                                 std::int64_t end = INT64_MAX);

}  // namespace tenscope::arrow
