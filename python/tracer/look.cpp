#include <utility>

#include "bindings/live_run.hpp"
#include "tracer/changes.hpp"
#include "tracer/registry.hpp"
#include "tracer/run_sink.hpp"

namespace tenscope::python {
namespace {

PyObject* slot_value(const Frame& frame, Slot slot) {
  return Check{.place = &frame.slots[slot.index], .cell = slot.cell}.value();
}

// Takes over the references in `old` and `now`.
void append(CallLog& log, const Frame& frame, int next_line, Session::Entry& entry, PyObject* name, const Kept& old,
            const Kept& now) {
  if (entry.name < 0) {
    entry.name = static_cast<std::int64_t>(log.names.size());
    log.names.push_back(Ref::share(name));
  }
  log.items.append({stamp_now(), old.payload, now.payload, frame.info, static_cast<std::uint32_t>(entry.name),
                    frame.line, next_line, old.kind, now.kind});
}

bool is_full(const CallLog& log, const WatchOptions& options) {
  return options.max_changes >= 0 && static_cast<std::int64_t>(log.items.size()) >= options.max_changes;
}

// One value of one expression: is it new, and if so, who is told.
void observe(const Frame& frame, Session& session, Session::Entry& entry, PyObject* name, PyObject* value,
             int next_line) {
  Watcher& watcher = *session.watcher;
  const WatchOptions& options = watcher.options;
  PyObject* pinned = entry.known.pinned();
  Ref old = Ref::share(pinned ? pinned : entry.snapshot.get());
  const bool changed = entry.known.update(value, options.ladder);
  if (!entry.known.left_out().empty() && !entry.told_left_out) [[unlikely]] {
    entry.told_left_out = true;
    tell_not_compared(watcher, *frame.info, name, entry.known.left_out());
  }
  if (!changed) return;

  if (watcher.on_value) {
    if (frame.flags & kIgnored) return;
    const Ref line = Ref::steal(PyLong_FromLong(frame.line)), next = Ref::steal(PyLong_FromLong(next_line));
    PyObject* tag = session.tag ? session.tag.get() : Py_None;
    const Ref result = Ref::steal(
        PyObject_CallFunctionObjArgs(watcher.on_value.get(), tag, name, value, line.get(), next.get(), nullptr));
    if (!result) note_failure("on_value");
    return;
  }

  CallLog& log = *session.log;
  if (!(frame.flags & kIgnored) && is_full(log, options)) {
    ++log.left_out;
    entry.snapshot = {};
    return;
  }
  Ref now = entry.known.pinned() ? Ref::share(value) : snapshot(value, options.snapshot);
  entry.snapshot = entry.known.pinned() ? Ref() : now;
  if (frame.flags & kIgnored) return;

  append(log, frame, next_line, entry, name, Kept::of(old.get()), Kept::of(now.get()));
  const bool recorded = options.record && is_recording();
  if (recorded || watcher.on_change) {
    const ChangeItem item{Ref::share(name), std::move(old), std::move(now), frame.line,
                          next_line,        wall_time_ns(), frame.info};
    if (recorded) record_change(watcher, log, item, value);
    if (watcher.on_change) {
      const Ref change = make_change(session.log, item);
      if (!change || !Ref::steal(PyObject_CallOneArg(watcher.on_change.get(), change.get()))) note_failure("hook");
    }
  }
  if (!options.keep) log.items.drop_last();
}

// Plain variables that were numbers and are numbers: the common case, in which no Python code can run and nobody is to
// be told at once. False: something else is there to be looked at; what was done before stands.
bool look_at_numbers(const Frame& frame, int next_line) {
  if (frame.flags & kIgnored || frame.has_unplaced) return false;
  const bool inert = frame.flags & kInert;
  for (const Check& check : frame.checks) {
    PyObject* value = check.value();
    Session::Entry& entry = *check.entry;
    if (value == entry.root && (entry.settled || inert)) continue;
    PyObject* pinned = entry.known.pinned();
    if (!value || !pinned || !check.name) return false;
    const Kept old = Kept::of_number(pinned), now = Kept::of_number(value);
    if (old.kind == KeptKind::Nothing || now.kind == KeptKind::Nothing) return false;
    if (!old.is_same_number(now)) {
      const Watcher& watcher = *check.session->watcher;
      CallLog& log = *check.session->log;
      const WatchOptions& options = watcher.options;
      if (watcher.on_change || watcher.on_value || !options.keep || is_full(log, options)) return false;
      if (options.record && is_recording()) return false;
      append(log, frame, next_line, entry, check.name, old, now);
    }
    entry.known.pin_number(value);
    entry.root = value;
    entry.settled = true;
  }
  return true;
}

// A variable of the frame, by name; for names without a slot.
Ref variable(const Frame& frame, PyObject* name, bool globals) {
  int is_cell = 0;
  const int index = ts_find_slot(frame.code(), name, &is_cell);
  if (index >= 0) return Ref::share(slot_value(frame, {0, index, is_cell != 0}));
  PyObject* space = ts_frame_namespace(frame.frame);
  Ref found;
  if (space) {
    found = PyDict_Check(space) ? Ref::share(PyDict_GetItemWithError(space, name))
                                : Ref::steal(PyObject_GetItem(space, name));
  }
  if (!found && globals) found = Ref::share(PyDict_GetItemWithError(ts_frame_globals(frame.frame), name));
  drop_error();
  return found;
}

}  // namespace

ChangeItem CallLog::unpack(std::size_t index) {
  const PackedChange& packed = items[index];
  if (!anchor) anchor = StampAnchor::make();
  const std::int64_t time_ns = anchor->time_of(packed.stamp);
  return {names[packed.name], packed.old_kept().unpack(), packed.new_kept().unpack(),
          packed.line,        packed.next_line,           time_ns,
          packed.info};
}

void Frame::resolve_checks() {
  checks.clear();
  has_unplaced = false;
  for (const Look& look : looks) {
    Session& session = *look.session;
    for (const Slot& slot : look.slots) {
      if (slot.index < 0) {
        has_unplaced = true;
        continue;
      }
      const Expression& expression = session.watcher->expressions[slot.expression];
      checks.push_back({.place = &slots[slot.index],
                        .session = &session,
                        .entry = &session.entries[slot.expression],
                        .name = expression.steps.empty() ? expression.text.get() : nullptr,
                        .cell = slot.cell});
    }
  }
}

void Frame::drop_ended() {
  std::vector<Look> ended;  // outlives what follows, since the end of a session may run Python code
  std::vector<Look> going_on;
  for (Look& look : looks) (look.ended ? ended : going_on).push_back(std::move(look));
  looks = std::move(going_on);
  has_ended = false;
  resolve_checks();
}

void look_at(const Frame& frame, const Look& look, const Slot& slot, int next_line) {
  Session& session = *look.session;
  Watcher& watcher = *session.watcher;
  Expression& expression = watcher.expressions[slot.expression];
  Session::Entry& entry = session.entries[slot.expression];

  const Ref root = slot.index >= 0 ? Ref::share(slot_value(frame, slot))
                                   : variable(frame, expression.root.get(), watcher.options.globals);
  if (root.get() == entry.root && (entry.settled || (frame.flags & kInert))) return;
  entry.root = root.get();
  entry.settled = !root;
  if (!root) return;

  if (expression.steps.empty()) {
    expression.seen = true;
    observe(frame, session, entry, expression.text.get(), root.get(), next_line);
    entry.settled = entry.known.pinned() == root.get();
    return;
  }
  const auto look_up = [&](PyObject* name) { return variable(frame, name, watcher.options.globals); };
  evaluate(expression, root.get(), look_up, [&](PyObject* name, PyObject* value) {
    const Ref hold = Ref::share(value);
    expression.seen = true;
    Session::Entry& target = expression.any ? session.any_entries[utf8(name)] : entry;
    observe(frame, session, target, name, value, next_line);
  });
  if (expression.variable) entry.root = nullptr, entry.settled = false;
}

void look_slowly(Thread& thread, Frame& frame, int next_line) noexcept try {
  if (thread.busy) return;
  if (frame.has_ended) [[unlikely]]
    frame.drop_ended();
  if (look_at_numbers(frame, next_line)) return;
  const Busy busy(thread);
  for (const Look& look : frame.looks) {
    for (const Slot& slot : look.slots) {
      if (!look.ended) look_at(frame, look, slot, next_line);
    }
  }
  if (frame.has_ended) frame.drop_ended();
} catch (const std::exception& error) {
  note_exception(error);
}

}  // namespace tenscope::python
