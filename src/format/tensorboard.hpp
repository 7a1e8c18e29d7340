#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "format/output_file.hpp"

namespace tenscope {

// Bins of equal or other width: `limits` are their right edges, the left edge of the first is `min`.
struct TensorBoardHistogram {
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  std::span<const double> limits;
  std::span<const double> counts;
};

// Writes an event file of TensorBoard: TFRecords, each the message tensorflow.Event with one summary in it. Times are
// seconds since the epoch. The file is there when commit() returns. Throws Io.
class TensorBoardFile {
 public:
  TensorBoardFile(const std::filesystem::path& path, double time);

  void add_scalar(std::string_view tag, std::int64_t step, double time, double value);  // kept as a float
  void add_histogram(std::string_view tag, std::int64_t step, double time, const TensorBoardHistogram& histogram);
  void commit() { file_.commit(); }

 private:
  void add_value(std::string_view tag, std::int64_t step, double time, std::string_view fields);
  void write_record(std::string_view message);

  OutputFile file_;
};

}  // namespace tenscope
