#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings/module.hpp"
#include "tracer/changes.hpp"
#include "tracer/python_types.hpp"

using namespace tenscope;
using namespace tenscope::python;

namespace {

nb::object shared(const Ref& ref) { return ref ? nb::borrow(ref.get()) : nb::none(); }
Ref optional(nb::handle object) { return object.is_none() ? Ref() : Ref::share(object.ptr()); }

nb::tuple shape_of(const TensorValue& tensor) {
  nb::list sizes;
  for (const std::int64_t size : tensor.shape) sizes.append(size);
  return nb::tuple(sizes);
}

std::shared_ptr<Watcher> make_watcher(const nb::iterable& expressions, const nb::dict& options) {
  auto watcher = std::make_shared<Watcher>();
  for (nb::handle parsed : expressions) watcher->expressions.push_back(Expression::from_python(parsed.ptr()));
  WatchOptions& o = watcher->options;
  for (auto [key, value] : options) {
    const auto name = nb::cast<std::string>(key);
    if (name == "on_change")
      watcher->on_change = optional(value);
    else if (name == "on_value")
      watcher->on_value = optional(value);
    else if (name == "on_enter")
      watcher->on_enter = optional(value);
    else if (name == "on_finish")
      watcher->on_finish = optional(value);
    else if (name == "keep")
      o.keep = nb::cast<bool>(value);
    else if (name == "record")
      o.record = nb::cast<bool>(value);
    else if (name == "globals")
      o.globals = nb::cast<bool>(value);
    else if (name == "shared")
      o.shared = nb::cast<bool>(value);
    else if (name == "depth")
      o.depth = nb::cast<int>(value);
    else if (name == "max_changes")
      o.max_changes = nb::cast<std::int64_t>(value);
    else if (name == "max_tensor_bytes")
      o.snapshot.max_tensor_bytes = nb::cast<std::size_t>(value);
    else if (name == "stats_only")
      o.values = nb::cast<bool>(value) ? Values::Stats : Values::Full;
    else if (name == "identity")
      o.ladder.identity = nb::cast<bool>(value);
    else if (name == "trust_version")
      o.ladder.trust = nb::cast<bool>(value) ? Trust::Versions : Trust::Nothing;
    else if (name == "reprs")
      o.ladder.opaque = o.snapshot.opaque = nb::cast<bool>(value) ? Opaque::Repr : Opaque::Identity;
    else
      throw Error(ErrorCode::InvalidArgument, "cannot make a Watcher: no option named " + name);
  }
  return watcher;
}

PyCodeObject* as_code(nb::handle object) {
  if (!PyCode_Check(object.ptr())) throw Error(ErrorCode::InvalidArgument, "cannot watch: not a code object");
  return reinterpret_cast<PyCodeObject*>(object.ptr());
}

PyFrameObject* as_frame(nb::handle object) {
  if (!PyFrame_Check(object.ptr())) throw Error(ErrorCode::InvalidArgument, "cannot watch: not a frame");
  return reinterpret_cast<PyFrameObject*>(object.ptr());
}

void bind_values(nb::module_& m) {
  nb::class_<TensorValue>(m, "TensorValue", nb::dynamic_attr(),
                          "A tensor as it was at a change: what it is, its statistics and, where kept, its bytes.")
      .def_prop_ro("dtype", [](const TensorValue& t) { return std::string(to_string(t.dtype)); })
      .def_prop_ro("shape", shape_of, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_ro("device", &TensorValue::device)
      .def_ro("from_torch", &TensorValue::from_torch)
      .def_prop_ro("fingerprint", [](const TensorValue& t) { return t.summary.fingerprint.hex(); })
      .def_prop_ro("count", [](const TensorValue& t) { return t.summary.stats.count; })
      .def_prop_ro("min", [](const TensorValue& t) { return t.summary.stats.min; })
      .def_prop_ro("max", [](const TensorValue& t) { return t.summary.stats.max; })
      .def_prop_ro("mean", [](const TensorValue& t) { return t.summary.stats.mean; })
      .def_prop_ro("std", [](const TensorValue& t) { return t.summary.stats.std; })
      .def_prop_ro("nan", [](const TensorValue& t) { return t.summary.stats.nan; })
      .def_prop_ro("inf", [](const TensorValue& t) { return t.summary.stats.pos_inf + t.summary.stats.neg_inf; })
      .def_prop_ro(
          "data",
          [](const TensorValue& t) -> nb::object {
            if (!t.has_bytes) return nb::none();
            return nb::bytes(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
          },
          nb::sig("def data(self) -> bytes | None"), "The bytes in C order, or None where only statistics were kept.")
      .def("__repr__", [](const TensorValue& t) { return fmt::format("<{}>", t.describe()); });
}

void bind_left_out(nb::module_& m) {
  nb::class_<LeftOut>(m, "LeftOut", "Stands in the copy of a nest for what is not in it.")
      .def_ro("count", &LeftOut::count, "How many items; 0 where it is not known.")
      .def_ro("reason", &LeftOut::reason)
      .def("__repr__", &LeftOut::describe);
}

void bind_changes(nb::module_& m) {
  nb::class_<Change>(m, "Change", "One change of a watched expression.")
      .def_prop_ro(
          "name", [](const Change& c) { return shared(c.item.name); }, nb::sig("def name(self) -> str"))
      .def_prop_ro(
          "old", [](const Change& c) { return shared(c.item.old_value); }, "The value before; None at first sight.")
      .def_prop_ro("new", [](const Change& c) { return shared(c.item.new_value); })
      .def_prop_ro(
          "first", [](const Change& c) { return !c.item.old_value; }, "Seen for the first time in this call.")
      .def_prop_ro(
          "line", [](const Change& c) { return c.item.line; }, "The line that made the change.")
      .def_prop_ro(
          "next_line", [](const Change& c) { return c.item.next_line; }, "The line about to run when it was seen.")
      .def_prop_ro("time_ns", [](const Change& c) { return c.item.time_ns; })
      .def_prop_ro(
          "code", [](const Change& c) { return nb::borrow(c.item.info->code.get()); },
          nb::sig("def code(self) -> types.CodeType"))
      .def_prop_ro("call", [](const Change& c) { return c.log->call; })
      .def_prop_ro("function", [](const Change& c) { return c.item.info->function; })
      .def_prop_ro("file", [](const Change& c) { return c.item.info->file; })
      .def_prop_ro("thread", [](const Change& c) { return c.log->thread; })
      .def_prop_ro("task", [](const Change& c) { return c.log->task; })
      .def("__repr__", [](const Change& c) {
        const std::string old = c.item.old_value ? short_text(c.item.old_value.get()) + " -> " : "";
        return fmt::format("<{} {}{} at line {}>", utf8(c.item.name.get()), old, short_text(c.item.new_value.get()),
                           c.item.line);
      });

  nb::class_<Changes>(m, "Changes", "The changes of one call, in order: a sequence of Change.")
      .def("__len__", [](const Changes& c) { return c.log->items.size(); })
      .def("__getitem__",
           [](const Changes& c, Py_ssize_t index) {
             const auto size = static_cast<Py_ssize_t>(c.log->items.size());
             if (index < 0) index += size;
             if (index < 0 || index >= size) throw nb::index_error("change index out of range");
             return Change{c.log, c.log->unpack(static_cast<std::size_t>(index))};
           })
      .def_prop_ro(
          "call", [](const Changes& c) { return c.log->call; }, "How many calls came before, from 0.")
      .def_prop_ro("function", [](const Changes& c) { return c.log->info->function; })
      .def_prop_ro("file", [](const Changes& c) { return c.log->info->file; })
      .def_prop_ro("thread", [](const Changes& c) { return c.log->thread; })
      .def_prop_ro(
          "raised", [](const Changes& c) { return c.log->raised; }, "The call ended by an exception.")
      .def_prop_ro("finished", [](const Changes& c) { return c.log->finished; })
      .def_prop_ro(
          "left_out", [](const Changes& c) { return c.log->left_out; }, "Changes beyond max_changes.")
      .def("__repr__", [](const Changes& c) {
        return fmt::format("<{} changes of {}()>", c.log->items.size(), c.log->info->function);
      });
}

}  // namespace

// Watcher is the tracer's inner API: the doors (watch, tree, the drop-ins, module tracing by local variables) are made
// of it.
void init_tracer(nb::module_& m) {
  bind_values(m);
  bind_left_out(m);
  bind_changes(m);

  nb::class_<Watcher>(m, "Watcher")
      .def("__init__", [](nb::handle_t<Watcher>) { throw nb::type_error("use make_watcher()"); })
      .def(
          "add",
          [](const std::shared_ptr<Watcher>& w, nb::handle code, nb::handle function) {
            add_code(w, as_code(code), function.is_none() ? nullptr : function.ptr(), nullptr);
          },
          nb::arg("code"), nb::arg("function").none() = nb::none(),
          "Watches calls of this code object; only those of `function` where it is given.")
      .def(
          "attach", [](const std::shared_ptr<Watcher>& w, nb::handle frame) { attach(w, as_frame(frame)); },
          nb::arg("frame"), "Watches a running frame of this thread from now on.")
      .def("detach", [](const std::shared_ptr<Watcher>& w) { detach(w); })
      .def(
          "close",
          [](const std::shared_ptr<Watcher>& w) {
            remove_watcher(w.get());
            w->publish_to = {};
          },
          "Watches nothing any more; calls that run now are watched to their end.")
      .def(
          "publish", [](Watcher& w, const nb::dict& attributes) { w.publish_to = Ref::share(attributes.ptr()); },
          nb::arg("attributes"), "After each call attributes['changes'] is its Changes.")
      .def_prop_ro("calls", [](const Watcher& w) { return w.calls; })
      .def_prop_ro(
          "unseen",
          [](const Watcher& w) {
            nb::list texts;
            for (const Expression& expression : w.expressions)
              if (!expression.seen) texts.append(shared(expression.text));
            return texts;
          },
          "The expressions that never had a value.")
      .def_prop_ro(
          "last", [](const Watcher& w) -> nb::object { return w.last ? nb::cast(Changes{w.last}) : nb::none(); },
          nb::sig("def last(self) -> Changes | None"), "The Changes of the call that ended last, or None.");
  m.def("make_watcher", make_watcher, nb::arg("expressions"), nb::arg("options"));
  m.def(
      "set_describe",
      [](const nb::callable& describe, const std::string& own_folder) { set_describe(describe.ptr(), own_folder); },
      nb::arg("describe"), nb::arg("own_folder"));
  m.def(
      "call_unwatched",
      [](const nb::callable& function, const nb::args& arguments) {
        PyObject* result = call_unwatched(function.ptr(), arguments.ptr());
        if (!result) throw nb::python_error();
        return nb::steal(result);
      },
      "Calls the function with nothing watched on this thread.");
  m.def("tracer_door", [] { return std::string(door_name()); });
  m.def(
      "digest",
      [](nb::handle value) {
        const ErrorKeeper keeper;
        const Digest digest = digest_of(value.ptr(), Opaque::Identity);
        return nb::make_tuple(digest.high, digest.low);
      },
      nb::arg("value").none(), nb::sig("def digest(value: object | None) -> tuple[int, int]"),
      "Two numbers that are equal for values of equal content.");
  m.def(
      "snapshot",
      [](nb::handle value, std::size_t max_tensor_bytes) {
        const ErrorKeeper keeper;
        return nb::steal(snapshot(value.ptr(), {max_tensor_bytes, Opaque::Identity}).release());
      },
      nb::arg("value").none(), nb::arg("max_tensor_bytes") = 1024);
}
