#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace tenscope::arrow {

enum class Type : std::uint8_t { Int32, Int64, Double, Bool, Time, Text, Shape };

// How a column of texts is laid out: Arrow's utf8, its large_utf8, or a dictionary of utf8 with a number for each row.
enum class TextLayout : std::uint8_t { Plain, Large, Coded };

// Bits, the lowest of each byte first.
struct Bits {
  std::vector<std::uint8_t> bytes;
  std::size_t size = 0;

  void add(bool bit) {
    if (size % 8 == 0) bytes.push_back(0);
    bytes.back() |= static_cast<std::uint8_t>(static_cast<unsigned>(bit) << (size % 8));
    ++size;
  }
  bool operator[](std::size_t i) const { return (bytes[i / 8] >> (i % 8) & 1u) != 0; }
};

// Texts one behind the other, and where each ends.
template <class Offset>
struct Texts {
  std::vector<Offset> ends{0};
  std::string bytes;

  void add(std::string_view text);  // throws Unsupported where its end would not fit into Offset
  std::size_t size() const { return ends.size() - 1; }
  std::string_view operator[](std::size_t i) const {
    return std::string_view(bytes).substr(static_cast<std::size_t>(ends[i]),
                                          static_cast<std::size_t>(ends[i + 1] - ends[i]));
  }
};

// Each text once, in order of first appearance, and for each row which it is.
struct Codes {
  std::vector<std::int32_t> codes;
  Texts<std::int32_t> words;
  std::unordered_map<std::string, std::int32_t> places;
};

// Lists of integers one behind the other, and where each ends.
struct Shapes {
  std::vector<std::int32_t> ends{0};
  std::vector<std::int64_t> sizes;
};

// The values of one column for the rows of one batch, in the buffers that Arrow lays down.
class Column {
 public:
  using Data = std::variant<std::vector<std::int32_t>, std::vector<std::int64_t>, std::vector<double>, Bits,
                            Texts<std::int32_t>, Texts<std::int64_t>, Codes, Shapes>;

  Column(Type type, TextLayout layout);
  void reserve(std::size_t rows);

  // One of these for each row, the one that fits the type.
  void add_null();
  void add_int(std::int64_t value);  // Int32, Int64, Time
  void add_double(double value);
  void add_bool(bool value);
  void add_text(std::string_view text);
  void add_shape(std::span<const std::int64_t> shape);

  const Data& data() const noexcept { return data_; }
  const Bits& valid() const noexcept { return valid_; }
  bool is_null(std::size_t row) const { return !valid_[row]; }
  std::int64_t null_count() const noexcept { return null_count_; }
  std::string_view text(std::size_t row) const;  // of any layout
  std::span<const std::int64_t> shape(std::size_t row) const;

 private:
  Data data_;
  Bits valid_;
  std::int64_t null_count_ = 0;
};

}  // namespace tenscope::arrow
