#define PY_SSIZE_T_CLEAN
#include "tracer/registry.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "tenscope/error.hpp"

namespace tenscope::python {
namespace {

std::string site_of(const std::string& file) {
  std::error_code failed;
  const std::string folder = std::filesystem::current_path(failed).string() + "/";
  if (file.starts_with(folder)) return file.substr(folder.size());
  return file.starts_with('/') ? file.substr(file.rfind('/') + 1) : file;
}

// What Python has to say of a code object (tenscope.lines.code_facts._describe).
void describe(CodeInfo& info) {
  const Ref describe = registry().describe;
  const Ref facts = Ref::steal(PyObject_CallOneArg(describe.get(), info.code.get()));
  const char* flags = nullptr;
  Py_ssize_t size = 0;
  int one_line_loops = 0;
  PyObject* comprehensions = nullptr;
  if (facts && PyArg_ParseTuple(facts.get(), "iy#pO!", &info.first_line, &flags, &size, &one_line_loops, &PyTuple_Type,
                                &comprehensions)) {
    info.flags.assign(flags, static_cast<std::size_t>(size));
    info.one_line_loops = one_line_loops;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(comprehensions); ++i) {
      int start = 0, end = 0;
      if (PyArg_ParseTuple(PyTuple_GET_ITEM(comprehensions, i), "ii", &start, &end)) {
        info.comprehensions.emplace_back(start, end);
      }
    }
  }
  drop_error();
}

}  // namespace

Registry& registry() {
  static auto* instance = new Registry;
  return *instance;
}

std::vector<Slot> find_slots(const Watcher& watcher, PyCodeObject* code) {
  std::vector<Slot> slots;
  const bool namespace_frame = !(code->co_flags & CO_OPTIMIZED);
  for (std::size_t i = 0; i < watcher.expressions.size(); ++i) {
    int is_cell = 0;
    const int index = ts_find_slot(code, watcher.expressions[i].root.get(), &is_cell);
    if (index >= 0 || namespace_frame || watcher.options.globals) {
      slots.push_back({static_cast<int>(i), index, is_cell != 0});
    }
  }
  return slots;
}

bool has_local(const Watcher& watcher, PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (!file) PyErr_Clear();
  if (file && !registry().own_folder.empty() && std::string_view(file).starts_with(registry().own_folder)) return false;
  int is_cell = 0;
  return std::any_of(watcher.expressions.begin(), watcher.expressions.end(),
                     [&](const Expression& e) { return ts_find_slot(code, e.root.get(), &is_cell) >= 0; });
}

CodeInfo* code_info(PyCodeObject* code) {
  if (const auto found = registry().codes.find(code); found != registry().codes.end()) return found->second;
  auto* info = new CodeInfo;
  registry().codes.emplace(code, info);
  info->code = Ref::share(reinterpret_cast<PyObject*>(code));
  const char* qualname = ts_code_qualname(code);
  info->function = qualname ? qualname : utf8(code->co_name);
  info->file = utf8(code->co_filename);
  info->site = site_of(info->file);
  info->first_line = code->co_firstlineno;
  if (registry().describe) describe(*info);
  return info;
}

void listen(CodeInfo& info, bool on) {
  if (info.listening != on) door_watch(info, on);
  info.listening = on;
}

void set_describe(PyObject* describe, const std::string& own_folder) {
  registry().own_folder = own_folder;
  registry().describe = Ref::share(describe);
}

bool is_watched(PyCodeObject* code) {
  const auto& codes = registry().codes;
  const auto found = codes.find(code);
  return found != codes.end() && found->second->listening;
}

void add_code(const std::shared_ptr<Watcher>& watcher, PyCodeObject* code, PyObject* function, ts_frame* frame) {
  Registry& state = registry();
  if (!state.open) {
    std::string problem;
    if (!door_open(problem)) throw Error(ErrorCode::Unsupported, problem);
    state.open = true;
  }
  CodeInfo* info = code_info(code);
  if (function && !ts_code_qualname(code)) {
    const Ref qualname = Ref::steal(PyObject_GetAttrString(function, "__qualname__"));
    if (qualname) info->function = utf8(qualname.get());
    drop_error();
  }
  info->entries.push_back({watcher, function, frame});
  if (watcher->options.depth != 1) {
    std::erase_if(state.deep, [](const auto& weak) { return weak.expired(); });
    state.deep.push_back(watcher);
    door_watch_deep();
  }
  listen(*info, true);
}

void remove_watcher(const Watcher* watcher) {
  std::vector<CodeInfo*> infos;  // a copy: what the door does may run Python code that watches more
  for (const auto& [code, info] : registry().codes) infos.push_back(info);
  for (CodeInfo* info : infos) {
    const auto removed =
        std::erase_if(info->entries, [&](const auto& entry) { return entry.watcher.get() == watcher; });
    if (removed && info->entries.empty()) listen(*info, false);
  }
}

bool is_wanted_below(PyCodeObject* code) {
  for (const auto& weak : registry().deep) {
    const auto watcher = weak.lock();
    if (watcher && has_local(*watcher, code)) return true;
  }
  return false;
}

}  // namespace tenscope::python
