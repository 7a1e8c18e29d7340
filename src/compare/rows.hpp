#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tenscope/diff.hpp"
#include "tenscope/reader.hpp"
#include "tenscope/run.hpp"

namespace tenscope::compare {

using RowKey = std::vector<std::int64_t>;  // one number of each key column, and the how manieth row with them it is

// The rows of a run: tokens of a padded batch, of packed requests, of many steps of an engine. Key columns, tensors of
// integers that the run recorded, say which row is which: "request", "position". A row with a negative number in its
// key is padding.
class RowTable {
 public:
  // Throws NotFound where the run has no such column, InvalidArgument where the columns do not fit together.
  RowTable(const Reader& reader, const std::vector<std::string>& columns);

  // Token ids instead of keys, where one run has them as [sequences, tokens]: a row is known by all tokens before it.
  // Both tables then have the sequence, as this one counts them, and the position for keys.
  bool has_sequences() const;
  void take_tokens_for_keys(RowTable& other);

  std::size_t row_count() const { return places_.size(); }
  std::size_t unplaced() const { return unplaced_; }         // rows that token ids do not tell from others
  std::size_t repeated_beyond(const RowTable& other) const;  // rows of a key that the other run has fewer times
  std::vector<RowKey> keys_in(const RowTable& other) const;  // of both, ascending

  // Writes the run anew with the given rows in the given order: each name once, at step 0, tensors of rows as
  // [rows, ...], parameters and buffers as they are.
  struct Written {
    std::map<std::string, DiffEvent> origin;             // by name: where its first rows were recorded
    std::map<std::string, std::vector<double>> numbers;  // floats that have one number in each row
    std::vector<std::string> left_out;                   // tensors that have no rows of this kind, or not all
  };
  Written write(const std::vector<RowKey>& keys, Run& run) const;

 private:
  using Batch = std::pair<std::size_t, std::int64_t>;  // writer, and a step or the number of the columns' recording
  struct Place {
    Batch batch;
    std::int64_t row = 0;
  };
  struct Logical;  // one tensor or call, as all batches have it

  std::vector<Batch> batches_of_events() const;
  void place_rows();
  std::vector<Logical> logical_events() const;
  bool write_rows(const Logical& logical, const std::vector<RowKey>& keys, Run& run, Written& written) const;

  const Reader& reader_;
  std::vector<std::string> columns_;
  std::vector<Batch> batch_of_;                                      // by event
  std::map<Batch, std::vector<std::int64_t>> shapes_;                // of the key columns
  std::map<Batch, std::vector<std::vector<std::int64_t>>> numbers_;  // of each column
  std::map<RowKey, Place> places_;
  std::size_t unplaced_ = 0;
};

// diff_runs for options.rows.
RunDiff diff_by_rows(const std::filesystem::path& a, const std::filesystem::path& b, const RunDiffOptions& options);

}  // namespace tenscope::compare
