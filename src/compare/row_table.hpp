#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/shape.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

using RowKey = std::vector<std::uint64_t>;  // one number of each key column

struct RowPlace {
  std::size_t batch = 0;
  std::int64_t row = 0;
};

// The rows of a run: tokens of a padded batch, of packed requests, of many steps of an engine. Key columns, tensors of
// integers that the run recorded, say which row is which: "request", "position". A row with a negative number in its
// key is padding.
class RowTable {
 public:
  // Throws NotFound where the run has no such column, InvalidArgument where the columns do not fit together.
  RowTable(const Reader& reader, const std::vector<std::string>& columns);

  // Token ids instead of keys, where one run has them as [sequences, tokens]: a row is known by all tokens before it.
  // Both tables then have the sequence, as this one counts them, and the place in it for keys.
  bool has_sequences() const;
  bool has_unique_keys() const;  // within each batch
  void take_tokens_for_keys(RowTable& other);

  const Reader& reader() const { return reader_; }
  bool is_column(std::string_view name) const;
  std::size_t batch_count() const { return batches_.size(); }
  const Shape& batch_shape(std::size_t batch) const { return batches_[batch].shape; }
  // The batch that an event belongs to; nothing where that has no keys.
  std::optional<std::size_t> batch_of(EventId id) const;

  // Where the rows of each key are, in the order in which they were recorded.
  const std::map<RowKey, std::vector<RowPlace>>& places() const { return places_; }
  std::size_t padding() const { return padding_; }
  std::size_t unplaced() const { return unplaced_; }  // rows that token ids do not place in a sequence

 private:
  using BatchName = std::pair<std::size_t, std::int64_t>;  // writer, and a step or the number of the keys' recording
  struct Numbers {
    Shape shape;
    std::vector<std::uint64_t> values;
    std::vector<bool> is_negative;
  };
  struct Batch {
    Shape shape;
    std::vector<Numbers> columns;  // all of that shape
  };

  std::vector<BatchName> name_batches() const;
  Numbers read_column(EventId id, const std::string& column) const;
  void place_rows();

  const Reader& reader_;
  std::vector<std::string> columns_;
  std::vector<std::size_t> batch_of_;  // by event; the number of batches: none
  std::vector<Batch> batches_;
  std::map<RowKey, std::vector<RowPlace>> places_;
  std::size_t padding_ = 0, unplaced_ = 0;
};

}  // namespace tenscope::compare
