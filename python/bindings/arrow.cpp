#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "arrow/events.hpp"
#include "arrow/stream.hpp"
#include "bindings/live_run.hpp"
#include "bindings/module.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::python {
namespace {

using namespace nb::literals;

constexpr const char* kStreamName = "arrow_array_stream";
constexpr const char* kSchemaName = "arrow_schema";

// A capsule that releases what it holds, unless somebody has taken it out.
template <class Struct, const char* const& kName>
nb::object capsule_of(Struct made) {
  auto held = std::make_unique<Struct>(made);
  PyObject* capsule = PyCapsule_New(held.get(), kName, [](PyObject* self) {
    auto* inside = static_cast<Struct*>(PyCapsule_GetPointer(self, kName));
    if (inside->release != nullptr) inside->release(inside);
    delete inside;
  });
  if (capsule == nullptr) {
    made.release(&made);
    throw nb::python_error();
  }
  held.release();
  return nb::steal(capsule);
}

nb::object arrow_stream(std::shared_ptr<Reader> reader, std::string name, std::optional<std::int64_t> begin,
                        std::optional<std::int64_t> end, std::optional<std::int64_t> call, std::optional<int> rank,
                        nb::handle requested) {
  const ArrowSchema* schema = nullptr;
  if (!requested.is_none()) {
    schema = static_cast<const ArrowSchema*>(PyCapsule_GetPointer(requested.ptr(), kSchemaName));
    if (schema == nullptr) throw nb::python_error();
  }
  const Query query{.name = std::move(name), .call = call, .rank = rank};
  std::vector<EventId> events = arrow::find_events(*reader, query, begin.value_or(INT64_MIN), end.value_or(INT64_MAX));
  return capsule_of<ArrowArrayStream, kStreamName>(arrow::event_stream(std::move(reader), std::move(events), schema));
}

// Columns as pandas wants them: arrays of numbers, in which what is missing is NaN, and lists of objects.
struct PandasColumn {
  const arrow::Column& column;
  std::size_t rows;

  template <class Number>
  nb::object array(std::vector<Number> values) const {
    using Array = nb::ndarray<nb::numpy, Number, nb::ndim<1>>;
    auto* kept = new std::vector<Number>(std::move(values));
    nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<Number>*>(pointer); });
    return nb::cast(Array(kept->data(), {kept->size()}, owner));
  }

  template <class Number>
  nb::object operator()(const std::vector<Number>& values) const {
    if (column.null_count() == 0) return array(values);
    std::vector<double> numbers(values.begin(), values.end());
    for (std::size_t row = 0; row < rows; ++row)
      if (column.is_null(row)) numbers[row] = std::numeric_limits<double>::quiet_NaN();
    return array(std::move(numbers));
  }

  nb::object operator()(const arrow::Bits& bits) const {
    nb::list list;
    for (std::size_t row = 0; row < rows; ++row)
      list.append(column.is_null(row) ? nb::none() : nb::object(nb::bool_(bits[row])));
    return list;
  }

  nb::object operator()(const arrow::Codes& codes) const {
    std::vector<nb::str> words;
    for (std::size_t i = 0; i < codes.words.size(); ++i)
      words.emplace_back(codes.words[i].data(), codes.words[i].size());
    nb::list list;
    for (std::size_t row = 0; row < rows; ++row)
      list.append(column.is_null(row) ? nb::none() : nb::object(words[static_cast<std::size_t>(codes.codes[row])]));
    return list;
  }

  nb::object operator()(const arrow::Shapes&) const {
    std::map<std::vector<std::int64_t>, nb::object> tuples;
    nb::list list;
    for (std::size_t row = 0; row < rows; ++row) {
      if (column.is_null(row)) {
        list.append(nb::none());
        continue;
      }
      const std::span<const std::int64_t> shape = column.shape(row);
      nb::object& tuple = tuples[{shape.begin(), shape.end()}];
      if (!tuple.is_valid()) {
        nb::list sizes;
        for (const std::int64_t size : shape) sizes.append(size);
        tuple = nb::tuple(sizes);
      }
      list.append(tuple);
    }
    return list;
  }

  template <class Offset>
  nb::object operator()(const arrow::Texts<Offset>&) const {
    throw Error(ErrorCode::Unsupported, "texts are asked for by their codes");
  }
};

nb::list columns_of(const std::shared_ptr<const Reader>& reader, std::vector<EventId> events) {
  const std::span<const arrow::EventField> fields = arrow::event_fields();
  arrow::EventBatches batches(reader, std::move(events), arrow::Layouts(fields.size(), arrow::TextLayout::Coded));
  nb::list result;
  const auto next = [&] {
    const GilRelease release;
    return batches.next();
  };
  while (const auto batch = next()) {
    nb::dict columns;
    for (std::size_t i = 0; i < fields.size(); ++i)
      columns[nb::str(fields[i].name.data(), fields[i].name.size())] =
          std::visit(PandasColumn{batch->columns[i], batch->rows}, batch->columns[i].data());
    result.append(columns);
  }
  return result;
}

nb::list event_columns(const std::shared_ptr<Reader>& reader, std::optional<int> rank) {
  return columns_of(reader, reader->find({.rank = rank}));
}

// The pairs of a comparison, and for each run the columns of its events in them, in the order of the pairs.
nb::tuple diff_pairs(const std::string& a, const std::string& b, std::vector<std::string> map,
                     std::optional<double> tolerance, bool prefix, const std::vector<int>& ranks,
                     std::optional<std::string> noise) {
  std::vector<DiffPair> pairs;
  std::array<std::shared_ptr<const Reader>, 2> readers;
  std::array<std::vector<EventId>, 2> events;
  {
    const GilRelease release;
    diff_runs(a, b,
              {.map = std::move(map),
               .tolerance = tolerance,
               .ranks = ranks,
               .allow_prefix = prefix,
               .noise = std::move(noise),
               .on_pair = [&](const DiffPair& pair) { pairs.push_back(pair); }});
    for (const DiffPair& pair : pairs) {
      if (pair.a) events[0].push_back(*pair.a);
      if (pair.b) events[1].push_back(*pair.b);
    }
    readers = {std::make_shared<const Reader>(a, ReaderOptions{.ranks = ranks}),
               std::make_shared<const Reader>(b, ReaderOptions{.ranks = ranks})};
  }
  nb::list told;
  for (const DiffPair& pair : pairs)
    told.append(nb::make_tuple(pair.a.has_value(), pair.b.has_value(), static_cast<int>(pair.verdict), pair.error));
  return nb::make_tuple(told, columns_of(readers[0], events[0]), columns_of(readers[1], events[1]));
}

}  // namespace
}  // namespace tenscope::python

void init_arrow(nb::module_& m) {
  using namespace tenscope::python;
  m.def("arrow_stream", &arrow_stream, "reader"_a, "name"_a = "", "begin"_a = nb::none(), "end"_a = nb::none(),
        "call"_a = nb::none(), "rank"_a = nb::none(), "requested"_a = nb::none(),
        nb::sig("def arrow_stream(reader: Reader, name: str = '', begin: int | None = None, end: int | None = None, "
                "call: int | None = None, rank: int | None = None, requested: object | None = None) -> object"),
        "Events of the steps [begin, end) as a capsule of Arrow's C stream interface.");
  m.def(
      "arrow_schema", [] { return capsule_of<ArrowSchema, kSchemaName>(tenscope::arrow::event_schema()); },
      "Its schema, as a capsule.");
  m.def("event_columns", &event_columns, "reader"_a, "rank"_a = nb::none(),
        nb::sig("def event_columns(reader: Reader, rank: int | None = None) -> list[dict[str, Any]]"),
        "The events in batches of columns: arrays of numbers, lists of objects.");
  m.def("diff_pairs", &diff_pairs, "a"_a, "b"_a, "map"_a, "tolerance"_a.none(), "prefix"_a, "ranks"_a, "noise"_a.none(),
        nb::sig("def diff_pairs(a: str, b: str, map: Sequence[str], tolerance: float | None, prefix: bool, "
                "ranks: Sequence[int], noise: str | None) -> tuple[list[tuple[bool, bool, int, float]], "
                "list[dict[str, Any]], list[dict[str, Any]]]"),
        "What was said of each value and its partner: (is in a, is in b, PairVerdict, error), and both runs' events.");
}
