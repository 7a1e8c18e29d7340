#include "tracer/run_sink.hpp"

#include <fmt/format.h>

#include <string>

#include "bindings/recording.hpp"
#include "core/json_writer.hpp"
#include "tracer/changes.hpp"

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
  auto live = share_current_run();  // held: the old value's repr is Python code
  if (!live || !live->run.enabled()) return;
  live->tell_code(change.info->code.get());
  const std::string meta = meta_of(log, change);
  const std::string site = fmt::format("{}:{}", change.info->site, change.line);
  const std::string name = utf8(change.name.get());
  EventInfo info;
  info.kind = EventKind::Change;
  info.name = name;
  info.site = site;
  info.scope = change.info->function;
  info.io = Io::Local;
  info.task = log.task;
  info.meta = meta;
  if (record_object(std::move(live), info, value, watcher.options.values) < 0) note_failure("record");
}

void record_left_out(const CallLog& log) {
  auto live = share_current_run();
  if (!live || !live->run.enabled()) return;
  EventInfo info;
  info.kind = EventKind::Dropped;
  info.name = kWatchLimit;
  info.scope = log.info->function;
  if (record_value(std::move(live), info, EventValue(log.left_out)) < 0) note_failure("record");
}

void tell_not_compared(const Watcher& watcher, const CodeInfo& code, PyObject* name, const std::string& reason) {
  const std::string watched = utf8(name);
  const std::string why = reason + ": changes of it go unseen";
  auto live = watcher.options.record ? share_current_run() : nullptr;
  if (!live || !live->run.enabled()) {
    warn_later(fmt::format("watch: {} in {}: {}", watched, code.function, why));
    return issue_warnings();
  }
  std::string meta;
  JsonWriter json(meta);
  json.begin_object().key("name").text(watched).key("reason").text(why).end_object();
  EventInfo info;
  info.kind = EventKind::Note;
  info.name = "not_seen";
  info.scope = code.function;
  info.meta = meta;
  if (record_value(std::move(live), info, EventValue(watched + ": " + why)) < 0) note_failure("record");
}

}  // namespace tenscope::python
