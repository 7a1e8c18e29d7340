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
#include <utility>

#include "bindings/object.hpp"

namespace tenscope::python {
namespace {

struct Entry {
  Ref code;
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

// The folder of tenscope's own Python: what calls from there has its site elsewhere, and says so itself. No static
// initialiser: it runs Python, and a thread that waits for one while it has the GIL would wait for ever.
const std::string& package_folder() {
  static auto* folder = new std::string;
  if (!folder->empty()) return *folder;
  const Ref module = Ref::steal(PyImport_ImportModule("tenscope.errors"));
  const std::string path = utf8(attribute(module.get(), "__file__").get());
  drop_error();
  if (folder->empty()) *folder = path.empty() ? "?" : path.substr(0, path.rfind('/') + 1);
  return *folder;
}

std::string describe(PyFrameObject* frame, PyCodeObject* code) {
  const std::string file = utf8(code->co_filename);
  if (file.empty() || file.starts_with(package_folder())) return {};
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
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return;
  try {
    static auto* cache = new std::array<Entry, 256>;
    code = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    int instruction = instruction_of(frame);
    auto hash = reinterpret_cast<std::uintptr_t>(code.get()) / 16 * 31 + static_cast<unsigned>(instruction);
    Entry& entry = (*cache)[hash % cache->size()];
    if (entry.code.get() != code.get() || entry.instruction != instruction) {
      std::string fresh = describe(frame, reinterpret_cast<PyCodeObject*>(code.get()));
      entry.text = std::move(fresh);
      entry.instruction = instruction;
      entry.code = Ref::share(code.get());
    }
    size = std::min(entry.text.size(), sizeof text);
    while (size < entry.text.size() && size > 0 && (entry.text[size] & 0xC0) == 0x80) --size;  // no half character
    std::memcpy(text, entry.text.data(), size);
  } catch (...) {
    size = 0;
  }
}

}  // namespace tenscope::python
