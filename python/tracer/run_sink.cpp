#include "tracer/run_sink.hpp"

#include <fmt/format.h>

#include <string_view>

#include "bindings/recording.hpp"
#include "core/json_writer.hpp"

namespace tenscope::python {
namespace {

// The old value as JSON where it is small, its description where it is not.
void write_old(JsonWriter& json, PyObject* old) {
  if (old == Py_None) return void(json.null());
  if (PyBool_Check(old)) return void(json.boolean(old == Py_True));
  if (PyLong_CheckExact(old)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(old, &overflow);
    if (!overflow) return void(json.number(static_cast<std::int64_t>(number)));
  }
  if (PyFloat_CheckExact(old)) return void(json.number(PyFloat_AS_DOUBLE(old)));
  json.text(short_text(old, 120));
}

std::string meta_of(const CallLog& log, const ChangeItem& change) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("line").number(change.line).key("call").number(log.call);
  if (change.old_value) {
    json.key("old");
    write_old(json, change.old_value.get());
  }
  json.end_object();
  return text;
}

}  // namespace

void record_change(const Watcher& watcher, const CallLog& log, const ChangeItem& change, PyObject* value) {
  Run* run = current_run();
  if (!run || !run->enabled()) return;
  const std::string meta = meta_of(log, change);
  const std::string site = fmt::format("{}:{}", change.info->site, change.line);
  Py_ssize_t size = 0;
  const char* name = PyUnicode_AsUTF8AndSize(change.name.get(), &size);
  EventInfo info;
  info.kind = EventKind::Change;
  info.name = name ? std::string_view(name, static_cast<std::size_t>(size)) : std::string_view();
  info.site = site;
  info.scope = change.info->function;
  info.io = Io::Local;
  info.task = log.task;
  info.meta = meta;
  record_object(*run, info, value, watcher.options.values);
  PyErr_Clear();
}

void record_left_out(const CallLog& log) {
  Run* run = current_run();
  if (!run || !run->enabled()) return;
  EventInfo info;
  info.kind = EventKind::Dropped;
  info.name = kWatchLimit;
  info.scope = log.info->function;
  record_value(*run, info, EventValue(log.left_out));
  PyErr_Clear();
}

}  // namespace tenscope::python
