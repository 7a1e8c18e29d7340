#include "arrow/column.hpp"

#include <limits>

#include "tenscope/error.hpp"

namespace tenscope::arrow {
namespace {

Column::Data empty_data(Type type, TextLayout layout) {
  switch (type) {
    case Type::Int32:
      return std::vector<std::int32_t>();
    case Type::Int64:
    case Type::Time:
      return std::vector<std::int64_t>();
    case Type::Double:
      return std::vector<double>();
    case Type::Bool:
      return Bits();
    case Type::Shape:
      return Shapes();
    case Type::Text:
      break;
  }
  if (layout == TextLayout::Coded) return Codes();
  return layout == TextLayout::Large ? Column::Data(Texts<std::int64_t>()) : Column::Data(Texts<std::int32_t>());
}

std::int32_t code_of(Codes& codes, std::string_view text) {
  const auto [place, is_new] =
      codes.places.try_emplace(std::string(text), static_cast<std::int32_t>(codes.words.size()));
  if (is_new) codes.words.add(text);
  return place->second;
}

class Reserve {
 public:
  explicit Reserve(std::size_t rows) : rows_(rows) {}
  template <class Number>
  void operator()(std::vector<Number>& values) const {
    values.reserve(rows_);
  }
  template <class Offset>
  void operator()(Texts<Offset>& texts) const {
    texts.ends.reserve(rows_ + 1);
  }
  void operator()(Bits& bits) const { bits.bytes.reserve(rows_ / 8 + 1); }
  void operator()(Codes& codes) const { codes.codes.reserve(rows_); }
  void operator()(Shapes& shapes) const { shapes.ends.reserve(rows_ + 1); }

 private:
  std::size_t rows_;
};

// What stands in a column where there is nothing: it is never looked at.
struct AddNothing {
  template <class Number>
  void operator()(std::vector<Number>& values) const {
    values.push_back({});
  }
  template <class Offset>
  void operator()(Texts<Offset>& texts) const {
    texts.add({});
  }
  void operator()(Bits& bits) const { bits.add(false); }
  void operator()(Codes& codes) const { codes.codes.push_back(0); }
  void operator()(Shapes& shapes) const { shapes.ends.push_back(shapes.ends.back()); }
};

}  // namespace

template <class Offset>
void Texts<Offset>::add(std::string_view text) {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<Offset>::max()) - bytes.size())
    throw Error(ErrorCode::Unsupported, "a text of more than 2 GB does not fit into a column of strings");
  bytes += text;
  ends.push_back(static_cast<Offset>(bytes.size()));
}
template struct Texts<std::int32_t>;
template struct Texts<std::int64_t>;

Column::Column(Type type, TextLayout layout) : data_(empty_data(type, layout)) {}

void Column::reserve(std::size_t rows) {
  std::visit(Reserve(rows), data_);
  valid_.bytes.reserve(rows / 8 + 1);
}

void Column::add_null() {
  std::visit(AddNothing(), data_);
  valid_.add(false);
  ++null_count_;
}

void Column::add_int(std::int64_t value) {
  if (auto* numbers = std::get_if<std::vector<std::int64_t>>(&data_))
    numbers->push_back(value);
  else
    std::get<std::vector<std::int32_t>>(data_).push_back(static_cast<std::int32_t>(value));
  valid_.add(true);
}

void Column::add_double(double value) {
  std::get<std::vector<double>>(data_).push_back(value);
  valid_.add(true);
}

void Column::add_bool(bool value) {
  std::get<Bits>(data_).add(value);
  valid_.add(true);
}

void Column::add_text(std::string_view text) {
  if (auto* texts = std::get_if<Texts<std::int32_t>>(&data_))
    texts->add(text);
  else if (auto* codes = std::get_if<Codes>(&data_))
    codes->codes.push_back(code_of(*codes, text));
  else
    std::get<Texts<std::int64_t>>(data_).add(text);
  valid_.add(true);
}

void Column::add_shape(std::span<const std::int64_t> shape) {
  auto& shapes = std::get<Shapes>(data_);
  shapes.sizes.insert(shapes.sizes.end(), shape.begin(), shape.end());
  shapes.ends.push_back(static_cast<std::int32_t>(shapes.sizes.size()));
  valid_.add(true);
}

std::string_view Column::text(std::size_t row) const {
  if (const auto* texts = std::get_if<Texts<std::int32_t>>(&data_)) return (*texts)[row];
  if (const auto* texts = std::get_if<Texts<std::int64_t>>(&data_)) return (*texts)[row];
  const auto& codes = std::get<Codes>(data_);
  return codes.words[static_cast<std::size_t>(codes.codes[row])];
}

std::span<const std::int64_t> Column::shape(std::size_t row) const {
  const auto& shapes = std::get<Shapes>(data_);
  const auto begin = static_cast<std::size_t>(shapes.ends[row]), end = static_cast<std::size_t>(shapes.ends[row + 1]);
  return std::span(shapes.sizes).subspan(begin, end - begin);
}

}  // namespace tenscope::arrow
