// What is asked of single elements: their texts, their bits, and where the next one of a kind is.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <complex>
#include <cstring>
#include <optional>
#include <vector>

#include "core/json_writer.hpp"
#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"
#include "kernels/find.hpp"
#include "report/array_text.hpp"
#include "report/decimal.hpp"
#include "tenscope/error.hpp"
#include "viewer/requested_look.hpp"
#include "viewer/tensor_answers.hpp"

namespace tenscope::viewer {
namespace {

constexpr std::int64_t kMostElements = 4096;
constexpr std::size_t kLargestItem = 16;

// One element of a tensor.
struct Element {
  DType dtype = DType::F32;
  std::byte bytes[kLargestItem] = {};

  Element(const TensorView& view, const kernels::ElementReader& reader, std::int64_t place) : dtype(view.dtype) {
    std::byte scratch[kLargestItem];
    std::memcpy(bytes, reader.read(place, 1, scratch), reader.item_size());
  }

  std::string text() const { return report::array_text({bytes, dtype, {}, {}}); }

  // Hexadecimal digits, the sign's first; of a complex number both parts.
  std::string bits() const {
    const std::size_t parts = kind_of(dtype) == DTypeKind::Complex ? 2 : 1, size = item_size(dtype) / parts;
    std::string digits;
    for (std::size_t part = 0; part < parts; ++part) {
      if (part > 0) digits += ' ';
      for (std::size_t i = size; i-- > 0;)
        digits += fmt::format("{:02x}", static_cast<unsigned>(bytes[part * size + i]));
    }
    return digits;
  }

  bool is_whole() const { return kind_of(dtype) != DTypeKind::Float && kind_of(dtype) != DTypeKind::Complex; }

  __int128 whole() const {
    return kernels::visit_dtype(dtype, [&]<class T>(T) -> __int128 {
      if constexpr (std::is_integral_v<T>)
        return kernels::load<T>(bytes);
      else if constexpr (std::is_same_v<T, kernels::Bool>)
        return kernels::load<T>(bytes).bits != 0;
      else
        return 0;
    });
  }

  std::complex<double> complex() const {
    return kernels::visit_dtype(dtype, [&]<class T>(T) -> std::complex<double> {
      if constexpr (kernels::kIsComplex<T>)
        return std::complex<double>(kernels::load<T>(bytes));
      else
        return kernels::to_double(kernels::load<T>(bytes));
    });
  }
};

// `value` is what the Look of the pair has.
std::string difference_text(const Element& a, const Element& b, double value) {
  if (a.is_whole() && b.is_whole()) return fmt::format("{}", b.whole() - a.whole());
  const bool has_complex = kind_of(a.dtype) == DTypeKind::Complex || kind_of(b.dtype) == DTypeKind::Complex;
  if (!has_complex || value == 0) return report::scalar_text(value, report::FloatWidth::Double);
  const std::complex<double> difference = b.complex() - a.complex();
  return report::array_text({&difference, DType::C128, {}, {}});
}

// Steps from one float to the other; `value` is what the Look of the pair has, rounded above 2^53.
std::optional<std::uint64_t> exact_ulps(const Element& a, const Element& b, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  std::uint64_t ulps = 0;
  kernels::compare_table().ulps[static_cast<std::size_t>(a.dtype)](a.bytes, b.bytes, 1, &ulps);
  return value == 0 ? 0 : ulps;
}

std::string ulp_text(const Element& a, const Element& b, double value) {
  const auto ulps = exact_ulps(a, b, value);
  return ulps ? fmt::format("{}", *ulps) : report::scalar_text(value, report::FloatWidth::Double);
}

// "0,3,5" as the place in C order.
std::int64_t parse_place(const Parameters& parameters, std::string_view name, const TensorView& view,
                         std::vector<std::int64_t>& index) {
  const std::string given = parameters.text(name, "");
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::InvalidArgument, fmt::format("'{}' is '{}': {}", name, given, why));
  };
  index.clear();
  const char* at = given.data();
  const char* const end = at + given.size();
  while (at < end) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next < end && (*next != ',' || next + 1 == end)))
      throw refuse("an index is whole numbers with commas between them");
    index.push_back(value);
    at = next < end ? next + 1 : end;
  }
  if (index.size() != view.shape.size())
    throw refuse(fmt::format("an index of this tensor has {} numbers", view.shape.size()));
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    if (index[axis] < 0 || index[axis] >= view.shape[axis])
      throw refuse(fmt::format("axis {} has size {}", axis, view.shape[axis]));
    place = place * view.shape[axis] + index[axis];
  }
  return place;
}

void write_index(JsonWriter& json, const TensorView& view, std::int64_t place) {
  std::vector<std::int64_t> index(view.shape.size());
  for (std::size_t axis = index.size(); axis-- > 0; place /= view.shape[axis]) index[axis] = place % view.shape[axis];
  json.begin_array();
  for (const std::int64_t i : index) json.number(i);
  json.end_array();
}

void write_element(JsonWriter& json, const Element& element) {
  json.begin_object().key("text").text(element.text()).key("bits").text(element.bits());
  json.key("dtype").text(to_string(element.dtype)).end_object();
}

double value_at(const kernels::Look& look, std::int64_t place) {
  kernels::LookBlock block;
  look.read(place, 1, block);
  return block.values[0];
}

}  // namespace

Answer elements_answer(const TensorPair& pair, const Parameters& parameters) {
  const Of of = requested_of(parameters);
  const Picture picture(pair.a, parameters);
  const kernels::Look look = requested_look(pair, of, picture);
  const auto rows = parameters.range("rows", picture.rows()), cols = parameters.range("cols", picture.cols());
  const std::int64_t height = rows.second - rows.first, width = cols.second - cols.first;
  if (width > 0 && height > kMostElements / width) {
    throw Error(
        ErrorCode::InvalidArgument,
        fmt::format("at most {} elements are told at once, and {} x {} are asked for", kMostElements, height, width));
  }
  const Picture::Matrix a = picture.matrix(pair.a);
  const Picture::Matrix b = picture.matrix(pair.b && of != Of::A ? *pair.b : pair.a);
  const TensorView a_view = a.view(), b_view = b.view();
  const kernels::ElementReader a_reader(a_view), b_reader(b_view);
  const auto text = [&](std::int64_t place) -> std::string {
    const Element x(a_view, a_reader, place);
    if (of == Of::A) return x.text();
    const Element y(b_view, b_reader, place);
    if (of == Of::B) return y.text();
    const double value = value_at(look, place);
    if (of == Of::Difference) return difference_text(x, y, value);
    return of == Of::Ulps ? ulp_text(x, y, value) : report::scalar_text(value, report::FloatWidth::Double);
  };
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  json.key("rows").begin_array().number(rows.first).number(rows.second).end_array();
  json.key("cols").begin_array().number(cols.first).number(cols.second).end_array();
  json.key("text").begin_array();
  for (std::int64_t row = rows.first; row < rows.second; ++row) {
    json.begin_array();
    for (std::int64_t col = cols.first; col < cols.second; ++col) json.text(text(picture.place(row, col)));
    json.end_array();
  }
  json.end_array().end_object();
  return json_answer(std::move(body));
}

Answer element_answer(const TensorPair& pair, const Parameters& parameters) {
  std::vector<std::int64_t> index;
  const std::int64_t place = parse_place(parameters, "index", pair.a, index);
  const Element a(pair.a, kernels::ElementReader(pair.a), place);
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("index");
  write_index(json, pair.a, place);
  json.key("a");
  write_element(json, a);
  if (!pair.b || !std::equal(pair.a.shape.begin(), pair.a.shape.end(), pair.b->shape.begin(), pair.b->shape.end())) {
    for (const char* name : {"b", "difference", "relative", "ulp"}) json.key(name).null();
    json.end_object();
    return json_answer(std::move(body));
  }
  const TensorView& partner = partner_of(pair);
  const Element b(partner, kernels::ElementReader(partner), place);
  json.key("b");
  write_element(json, b);
  json.key("difference").text(difference_text(a, b, value_at({kernels::LookKind::Difference, pair.a, partner}, place)));
  json.key("relative");
  write_number(json, value_at({kernels::LookKind::Relative, pair.a, partner}, place));
  std::optional<std::uint64_t> ulps;
  if (a.dtype == b.dtype && kind_of(a.dtype) == DTypeKind::Float)
    ulps = exact_ulps(a, b, value_at({kernels::LookKind::Ulps, pair.a, partner}, place));
  json.key("ulp");
  if (ulps)
    json.number(*ulps);
  else
    json.null();
  json.end_object();
  return json_answer(std::move(body));
}

Answer find_answer(const TensorPair& pair, const Parameters& parameters) {
  using Kind = kernels::Wanted::Kind;
  const std::string what = parameters.text("what");
  kernels::Wanted wanted;
  const bool is_of_pair = what == "worst" || what == "differs" || what == "mismatch";
  const Of of = requested_of(parameters);
  if (!is_of_pair && of != Of::A && of != Of::B)
    throw Error(ErrorCode::InvalidArgument, fmt::format("'{}' is looked for in a or b", what));
  const kernels::Look look = requested_look(pair, is_of_pair ? Of::Difference : of);
  if (what == "nan") {
    wanted.kind = Kind::Nan;
  } else if (what == "inf") {
    wanted.kind = Kind::Inf;
  } else if (what == "bad") {
    wanted.kind = Kind::Bad;
  } else if (what == "differs") {
    wanted.kind = Kind::Nonzero;
  } else if (what == "mismatch") {
    wanted.kind = Kind::Mismatch;
    wanted.tolerance = requested_tolerance(parameters);
  } else if (what == "largest" || what == "worst") {
    wanted.kind = Kind::Magnitude;
    wanted.magnitude = kernels::largest_magnitude(look);
    // Of a pair without any finite difference those that are not finite are the worst.
    if (what == "worst" && wanted.magnitude <= 0) wanted.kind = Kind::Nonzero;
  } else {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("'what' is one of worst, largest, nan, inf, bad, differs, mismatch, and not '{}'", what));
  }
  std::optional<std::int64_t> from;
  std::vector<std::int64_t> index;
  if (parameters.has("from")) from = parse_place(parameters, "from", pair.a, index);
  const std::int64_t found = kernels::find_next(look, wanted, from, parameters.flag("back"));
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("index");
  if (found < 0)
    json.null();
  else
    write_index(json, pair.a, found);
  json.key("count");
  if (parameters.text("count", "1") == "0")
    json.null();
  else
    json.number(found < 0 ? std::int64_t{0} : kernels::count_wanted(look, wanted));
  json.end_object();
  return json_answer(std::move(body));
}

}  // namespace tenscope::viewer
