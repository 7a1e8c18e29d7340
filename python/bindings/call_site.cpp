// Overview: a line number is decoded from the code's line table, which is slow in long functions, so sites are cached
// by code object and instruction. An entry holds its code object: an address is never reused while it is in the cache.
#include "bindings/call_site.hpp"

#include <Python.h>
#include <frameobject.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>

namespace tenscope::python {
namespace {

struct Entry {
  PyCodeObject* code = nullptr;
  int instruction = -1;
  std::string text;
};

int instruction_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti;
#endif
}

// The folder of tenscope's own Python: what calls from there has its site elsewhere, and says so itself.
const std::string& package_folder() {
  static const std::string folder = [] {
    PyObject* module = PyImport_ImportModule("tenscope.errors");
    PyObject* file = module ? PyObject_GetAttrString(module, "__file__") : nullptr;
    const char* text = file ? PyUnicode_AsUTF8(file) : nullptr;
    std::string path = text ? text : "";
    PyErr_Clear();
    Py_XDECREF(file);
    Py_XDECREF(module);
    return path.empty() ? std::string("?") : path.substr(0, path.rfind('/') + 1);
  }();
  return folder;
}

std::string describe(PyFrameObject* frame, PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (!file) {
    PyErr_Clear();
    return {};
  }
  if (std::string_view(file).starts_with(package_folder())) return {};
  std::error_code failed;
  std::string folder = std::filesystem::current_path(failed).string() + "/";
  std::string_view path(file);
  if (path.starts_with(folder)) {
    path.remove_prefix(folder.size());
  } else if (path.starts_with('/')) {
    path.remove_prefix(path.rfind('/') + 1);
  }
  return std::string(path) + ":" + std::to_string(PyFrame_GetLineNumber(frame));
}

}  // namespace

CallSite::CallSite() noexcept {
  static auto* cache = new std::array<Entry, 256>;
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return;
  try {
    PyCodeObject* code = PyFrame_GetCode(frame);
    int instruction = instruction_of(frame);
    auto hash = reinterpret_cast<std::uintptr_t>(code) / 16 * 31 + static_cast<unsigned>(instruction);
    Entry& entry = (*cache)[hash % cache->size()];
    if (entry.code != code || entry.instruction != instruction) {
      std::string fresh = describe(frame, code);
      entry.text = std::move(fresh);
      entry.instruction = instruction;
      std::swap(entry.code, code);
    }
    size = std::min(entry.text.size(), sizeof text);
    std::memcpy(text, entry.text.data(), size);
    Py_XDECREF(code);
  } catch (...) {
    size = 0;
  }
}

}  // namespace tenscope::python
