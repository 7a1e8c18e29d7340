#include "cli/export_table.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "arrow/events.hpp"
#include "cli/python.hpp"
#include "format/output_file.hpp"

namespace tenscope::cli {
namespace {

using arrow::Column;

// A text in quotes where it has to be: also an empty one, since nothing between two commas is what is missing.
void add_quoted(std::string& line, std::string_view text) {
  if (!text.empty() && text.find_first_of(",\"\n\r") == text.npos) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) line += c == '"' ? std::string_view("\"\"") : std::string_view(&c, 1);
  line += '"';
}

// "2026-11-15T20:15:30.123456789Z"
void add_time(std::string& line, std::int64_t time_ns) {
  using namespace std::chrono;
  const auto whole = floor<std::chrono::seconds>(nanoseconds(time_ns));
  fmt::format_to(std::back_inserter(line), "{:%Y-%m-%dT%H:%M:%S}.{:09}Z",
                 fmt::gmtime(static_cast<std::time_t>(whole.count())),
                 (nanoseconds(time_ns) - nanoseconds(whole)).count());
}

void add_number(std::string& line, double value) {
  if (std::isnan(value))
    line += "NaN";
  else
    fmt::format_to(std::back_inserter(line), "{}", value);
}

class AddCell {
 public:
  AddCell(std::string& line, arrow::Type type, const Column& column, std::size_t row)
      : line_(line), type_(type), column_(column), row_(row) {}

  void operator()(const std::vector<std::int64_t>& values) const {
    if (type_ == arrow::Type::Time)
      add_time(line_, values[row_]);
    else
      fmt::format_to(std::back_inserter(line_), "{}", values[row_]);
  }
  void operator()(const std::vector<std::int32_t>& values) const {
    fmt::format_to(std::back_inserter(line_), "{}", values[row_]);
  }
  void operator()(const std::vector<double>& values) const { add_number(line_, values[row_]); }
  void operator()(const arrow::Bits& bits) const { line_ += bits[row_] ? "true" : "false"; }
  void operator()(const arrow::Shapes&) const {
    add_quoted(line_, fmt::format("[{}]", fmt::join(column_.shape(row_), ", ")));
  }
  template <class Texts>
  void operator()(const Texts&) const {
    add_quoted(line_, column_.text(row_));
  }

 private:
  std::string& line_;
  arrow::Type type_;
  const Column& column_;
  std::size_t row_;
};

}  // namespace

bool is_table_format(const std::filesystem::path& path) {
  constexpr std::string_view kEndings[] = {".csv", ".parquet", ".arrow", ".feather"};
  return std::ranges::find(kEndings, path.extension().string()) != std::end(kEndings);
}

void export_csv(std::shared_ptr<const Reader> reader, std::vector<EventId> events, const std::filesystem::path& out) {
  const std::span<const arrow::EventField> fields = arrow::event_fields();
  OutputFile file(out);
  std::string line;
  for (const arrow::EventField& field : fields) line += fmt::format("{}{}", line.empty() ? "" : ",", field.name);
  file.write(line + "\n");
  arrow::EventBatches batches(std::move(reader), std::move(events));
  while (const auto batch = batches.next()) {
    for (std::size_t row = 0; row < batch->rows; ++row) {
      line.clear();
      for (std::size_t i = 0; i < fields.size(); ++i) {
        if (i > 0) line += ',';
        const Column& column = batch->columns[i];
        if (!column.is_null(row)) std::visit(AddCell(line, fields[i].type, column, row), column.data());
      }
      line += '\n';
      file.write(line);
    }
  }
  file.commit();
}

std::size_t export_by_python(const std::vector<std::string>& words) {
  return std::stoull(output_of_python("tenscope.reading.table_file", words));
}

}  // namespace tenscope::cli
