#include "tenscope/reader.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings/live_run.hpp"
#include "bindings/module.hpp"
#include "report/run_warnings.hpp"
#include "store/shards.hpp"

namespace tenscope::python {
namespace {

using namespace nb::literals;

nb::object python_int(const std::string& digits) { return nb::steal(PyLong_FromString(digits.c_str(), nullptr, 10)); }

nb::object tuple_of(Span<const std::int64_t> shape) {
  nb::list items;
  for (auto size : shape) items.append(size);
  return nb::tuple(items);
}

// Tensors are not given here: Event.tensor tells of them, Reader.bytes gives their bytes.
nb::object python_value(const EventValue& value) {
  if (auto* truth = std::get_if<bool>(&value)) return nb::bool_(*truth);
  if (auto* integer = std::get_if<std::int64_t>(&value)) return nb::int_(*integer);
  if (auto* number = std::get_if<double>(&value)) return nb::float_(*number);
  if (auto* big = std::get_if<BigInt>(&value)) return python_int(big->digits);
  if (auto* text = std::get_if<std::string>(&value)) return nb::str(text->data(), text->size());
  return nb::none();
}

bool has_value(const Event& event) {
  return !std::holds_alternative<std::monostate>(event.value) && !std::holds_alternative<TensorRecord>(event.value);
}

// Integers come back exact.
nb::object extreme(const TensorRecord& tensor, double value, std::int64_t exact) {
  DTypeKind kind = kind_of(tensor.dtype);
  if (tensor.stats.count == 0 || (kind != DTypeKind::SignedInt && kind != DTypeKind::UnsignedInt))
    return nb::float_(value);
  if (tensor.dtype == DType::I64) return nb::int_(exact);
  if (tensor.dtype == DType::U64) return nb::int_(static_cast<std::uint64_t>(exact));
  return nb::int_(static_cast<std::int64_t>(value));
}

nb::dict stats_of(const TensorRecord& tensor) {
  const Stats& stats = tensor.stats;
  nb::dict out;
  out["count"] = stats.count;
  out["min"] = extreme(tensor, stats.min, stats.exact_min);
  out["max"] = extreme(tensor, stats.max, stats.exact_max);
  out["mean"] = stats.mean;
  out["std"] = stats.std;
  out["l2"] = stats.l2;
  out["abs_max"] = stats.abs_max;
  out["nan"] = stats.nan;
  out["pos_inf"] = stats.pos_inf;
  out["neg_inf"] = stats.neg_inf;
  out["zero"] = stats.zero;
  out["subnormal"] = stats.subnormal;
  return out;
}

// The bytes of a tensor in C order as a read-only array over the mapping, which the array keeps.
nb::object bytes_of(TensorData data) {
  using Bytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;
  if (!is_c_order(data.view)) throw Error(ErrorCode::Unsupported, "the stored tensor is not in C order");
  static const std::uint8_t nothing = 0;
  std::size_t size = size_bytes(data.view);
  const auto* bytes = size ? static_cast<const std::uint8_t*>(data.view.data) : &nothing;
  auto* owner = new std::shared_ptr<const void>(std::move(data.owner));
  nb::capsule keep(owner, [](void* pointer) noexcept { delete static_cast<std::shared_ptr<const void>*>(pointer); });
  return nb::cast(Bytes(bytes, {size}, keep));
}

nb::object sketch_of(const Reader& reader, EventId id) {
  const std::optional<Sketch> sketch = reader.sketch(id);
  if (!sketch) return nb::none();
  nb::list sums;
  for (const double sum : sketch->sums) sums.append(sum);
  return nb::tuple(sums);
}

nb::object tensor_bytes(const Reader& reader, EventId id) { return bytes_of(reader.tensor(id)); }

// The whole of a tensor that is spread over ranks: bytes, dtype and shape.
nb::object whole_tensor(const Reader& reader, EventId id) {
  TensorData data = store::assemble(reader, store::parts_of(reader, id));
  const std::string_view dtype = to_string(data.view.dtype);
  nb::object shape = tuple_of(data.view.shape);
  return nb::make_tuple(bytes_of(std::move(data)), dtype, std::move(shape));
}

std::optional<EventKind> kind_named(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  auto kind = parse_event_kind(*name);
  if (!kind) throw Error(ErrorCode::InvalidArgument, "no such kind of event: " + *name);
  return kind;
}

void bind_values(nb::module_& m) {
  nb::class_<TensorRecord>(m, "TensorRecord", "What an event tells of a tensor.")
      .def_prop_ro("dtype", [](const TensorRecord& t) { return to_string(t.dtype); })
      .def_prop_ro(
          "shape", [](const TensorRecord& t) { return tuple_of(t.shape); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_ro("device", &TensorRecord::device)
      .def_prop_ro("fingerprint", [](const TensorRecord& t) { return t.fingerprint.hex(); })
      .def_prop_ro("stats", &stats_of, nb::sig("def stats(self) -> dict[str, int | float]"))
      .def_prop_ro("has_bytes", &TensorRecord::has_bytes)
      .def_prop_ro("segment",
                   [](const TensorRecord& t) { return t.blob ? std::optional(t.blob->segment) : std::nullopt; })
      .def_prop_ro("offset",
                   [](const TensorRecord& t) { return t.blob ? std::optional(t.blob->offset) : std::nullopt; });

  nb::class_<Event>(m, "EventRecord", "One event as the journal has it.")
      .def_ro("seq", &Event::seq)
      .def_ro("time_ns", &Event::time_ns)
      .def_ro("thread", &Event::thread)
      .def_prop_ro("kind", [](const Event& e) { return to_string(e.kind); })
      .def_ro("name", &Event::name)
      .def_ro("step", &Event::step)
      .def_ro("call", &Event::call)
      .def_ro("site", &Event::site)
      .def_ro("scope", &Event::scope)
      .def_prop_ro("io", &Event::io_word)
      .def_prop_ro("phase", &Event::phase_word)
      .def_ro("root", &Event::root)
      .def_ro("cls", &Event::cls)
      .def_ro("task", &Event::task)
      .def_ro("meta", &Event::meta)
      .def_prop_ro("has_value", &has_value)
      .def_prop_ro(
          "value", [](const Event& e) { return python_value(e.value); },
          nb::sig("def value(self) -> bool | int | float | str | None"))
      .def_prop_ro(
          "tensor", [](const Event& e) -> const TensorRecord* { return std::get_if<TensorRecord>(&e.value); },
          nb::rv_policy::reference_internal, nb::sig("def tensor(self) -> TensorRecord | None"));

  nb::class_<Problem>(m, "Problem", "Damage or a gap found while reading.")
      .def_ro("file", &Problem::file)
      .def_ro("offset", &Problem::offset)
      .def_ro("reason", &Problem::reason)
      .def_prop_ro("is_loss", [](const Problem& p) { return p.kind == ProblemKind::Loss; })
      .def("__repr__", [](const Problem& p) {
        return "<Problem: " + p.reason + ", at byte " + std::to_string(p.offset) + " of " + p.file.string() + ">";
      });

  nb::class_<Loss>(m, "Loss", "What a writer did not keep, by reason.")
      .def_ro("writer", &Loss::writer)
      .def_ro("events", &Loss::events)
      .def_ro("tensors", &Loss::tensors)
      .def_ro("reason", &Loss::reason)
      .def_ro("is_limit", &Loss::is_limit)
      .def_ro("is_exact", &Loss::is_exact)
      .def("__str__", [](const Loss& loss) { return to_string(loss); })
      .def("__repr__", [](const Loss& loss) { return "<Loss: " + to_string(loss) + ">"; });

  nb::class_<SourceFile>(m, "SourceFile", "A source file of the program, as a writer of the run met it.")
      .def_ro("file", &SourceFile::file)
      .def_ro("path", &SourceFile::path)
      .def_ro("fingerprint", &SourceFile::fingerprint)
      .def_ro("left_out", &SourceFile::left_out)
      .def_ro("size_bytes", &SourceFile::size_bytes)
      .def_ro("line_count", &SourceFile::line_count)
      .def_ro("event", &SourceFile::event);

  nb::class_<WriterInfo>(m, "WriterInfo", "One folder of a run: who wrote it and how it ended.")
      .def_ro("folder", &WriterInfo::folder)
      .def_ro("rank", &WriterInfo::rank)
      .def_ro("closed", &WriterInfo::closed)
      .def_ro("repaired", &WriterInfo::repaired)
      .def_ro("running", &WriterInfo::running)
      .def_ro("event_count", &WriterInfo::event_count)
      .def_ro("dropped", &WriterInfo::dropped)
      .def_ro("exception", &WriterInfo::exception)
      .def_ro("exception_message", &WriterInfo::exception_message)
      .def_prop_ro("failed", &WriterInfo::failed);
}

// The words of event.hpp that Python writes.
void bind_words(nb::module_& m) {
  nb::list ios, phases, notes;
  for (int i = 1; i < static_cast<int>(Io::Other); ++i) ios.append(to_string(static_cast<Io>(i)));
  for (int i = 1; i < static_cast<int>(Phase::Other); ++i) phases.append(to_string(static_cast<Phase>(i)));
  for (const std::string_view note :
       {kClosedNote, kRepairedNote, kBudgetNote, kExceptionNote, kSignalNote, kExitNote, kNotSeenNote, kLeftOutNote,
        kMatchedNothingNote, kByPartsNote, kRecomputedNote, kShapesOnlyNote, kPipelineStageNote, kOutOfSyncNote,
        kSourceNote, kAgainstNote, kStoppedNote})
    notes.append(note);
  for (const std::string_view note : kSettingNotes) notes.append(note);
  m.attr("IO_WORDS") = nb::tuple(ios);
  m.attr("PHASE_WORDS") = nb::tuple(phases);
  m.attr("NOTE_NAMES") = nb::tuple(notes);
  m.attr("GRADIENT_SUFFIX") = kGradientSuffix;
  m.attr("CHANGED_INPUT_SUFFIX") = kChangedInputSuffix;
}

}  // namespace
}  // namespace tenscope::python

void init_reader(nb::module_& m) {
  using namespace tenscope;
  using namespace tenscope::python;
  bind_values(m);
  bind_words(m);

  nb::class_<Reader>(m, "Reader", "The journals of a run and its mapped tensors; see tenscope.open.")
      .def(
          "__init__",
          [](Reader* self, const std::filesystem::path& path) {
            GilRelease release;
            new (self) Reader(path);
          },
          "path"_a)
      .def_prop_ro("path", &Reader::path)
      .def_prop_ro("run_json", &Reader::run_json)
      .def_prop_ro("writers", [](const Reader& r) { return std::vector(r.writers().begin(), r.writers().end()); })
      .def_prop_ro("problems", [](const Reader& r) { return std::vector(r.problems().begin(), r.problems().end()); })
      .def_prop_ro("losses", &Reader::losses)
      .def("__len__", &Reader::event_count)
      .def("event", &Reader::event, "id"_a)
      .def(
          "kind", [](const Reader& r, EventId id) { return to_string(r.kind(id)); }, "id"_a)
      .def("name", &Reader::name, "id"_a)
      .def("step", &Reader::step, "id"_a)
      .def("call", &Reader::call, "id"_a)
      .def("writer", &Reader::writer_index, "id"_a)
      .def(
          "writer_of", [](const Reader& r, EventId id) { return r.writers()[r.writer_index(id)]; }, "id"_a)
      .def("is_tensor", &Reader::is_tensor, "id"_a)
      .def(
          "find",
          [](const Reader& r, std::string name, std::optional<std::int64_t> step, std::optional<std::int64_t> call,
             std::optional<int> rank, const std::optional<std::string>& kind) {
            return r.find(Query{std::move(name), step, call, rank, kind_named(kind)});
          },
          "name"_a = "", "step"_a = nb::none(), "call"_a = nb::none(), "rank"_a = nb::none(), "kind"_a = nb::none())
      .def("names", &Reader::names)
      .def("steps", &Reader::steps, "name"_a = "")
      .def("sketch", &sketch_of, "id"_a, nb::sig("def sketch(self, id: int) -> tuple[float, ...] | None"),
           "The 64 signed sums of a tensor: as recorded, else from its bytes; None where neither is there.")
      .def("sources", &Reader::sources, "The sources that the run keeps, each content of each file once.")
      .def(
          "source_text",
          [](const Reader& reader, const std::string& fingerprint) {
            const std::string text = reader.source_text(fingerprint);
            return nb::bytes(text.data(), text.size());
          },
          "fingerprint"_a, "The text of one of them, UTF-8.")
      .def("whole", &whole_tensor, "id"_a,
           nb::sig("def whole(self, id: int) -> tuple[numpy.ndarray, str, tuple[int, ...]]"),
           "The tensor that this event is one rank's part of: its bytes, dtype and shape.")
      .def("bytes", &tensor_bytes, "id"_a, nb::sig("def bytes(self, id: int) -> numpy.ndarray"),
           "A tensor's bytes, zero-copy and read-only.");

  m.def(
      "state_text", [](const std::vector<WriterInfo>& writers) { return state_text(writers); }, "writers"_a,
      "How a run stands: running, closed, failed (ValueError), crashed, repaired or empty.");
  m.def("run_warnings", &report::run_warnings, "reader"_a, "What the command line warns of, a sentence each.");
  m.def("list_runs", &list_runs, "folder"_a, "All runs below a folder, oldest first.");
  m.def("verify", &verify, "run"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Checks every checksum and fingerprint of a run; returns the problems.");
  m.def("repair", &repair, "run"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Seals what a crash left open; returns what it did.");
}
