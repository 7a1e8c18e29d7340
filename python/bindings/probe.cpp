#include <algorithm>
#include <atomic>
#include <cstring>

#include "bindings/module.hpp"
#include "bindings/tensor_adapter.hpp"
#include "kernels/element_reader.hpp"
#include "kernels/summarize.hpp"

// What the module probes need in the core: a tensor's fingerprint, and spy's quick way out.

namespace {

using tenscope::python::Borrowed;
using tenscope::python::BorrowedTensor;
using tenscope::python::Ref;

nb::object fingerprint(nb::handle object) {
  BorrowedTensor borrowed;
  if (borrowed.borrow_or_stand_in(object.ptr()) != Borrowed::Ok) return nb::none();
  const tenscope::Fingerprint print = tenscope::kernels::fingerprint(borrowed.view);
  char bytes[16];
  std::memcpy(bytes, &print.low, 8);
  std::memcpy(bytes + 8, &print.high, 8);
  return nb::bytes(bytes, sizeof bytes);
}

// A hash of a few elements, evenly spread: sees most of what is written past torch's version counters, in no time.
nb::object sample(nb::handle object) {
  constexpr std::int64_t kElements = 16;
  BorrowedTensor borrowed;
  if (borrowed.borrow_or_stand_in(object.ptr()) != Borrowed::Ok) return nb::none();
  const tenscope::kernels::ElementReader reader(borrowed.view);
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < std::min(kElements, reader.count()); ++i) {
    const std::int64_t last = reader.count() - 1;
    const std::int64_t index = reader.count() <= kElements
                                   ? i
                                   : static_cast<std::int64_t>(static_cast<double>(last) * static_cast<double>(i) /
                                                               static_cast<double>(kElements - 1));
    alignas(16) std::byte scratch[16] = {};
    std::uint64_t parts[2] = {};
    std::memcpy(parts, reader.read(index, 1, scratch), reader.item_size());
    for (const std::uint64_t part : parts) hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL + 1;
  }
  return nb::int_(hash);
}

std::atomic<int> g_listeners{0};

// While somebody listens it hands on to the module's attribute spy_active, which tenscope.probes.spy sets.
PyObject* spy(PyObject* module, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (g_listeners.load(std::memory_order_relaxed) == 0) Py_RETURN_NONE;
  const Ref active = Ref::steal(PyObject_GetAttrString(module, "spy_active"));
  if (!active) return nullptr;
  return PyObject_Vectorcall(active.get(), args, static_cast<size_t>(count), keywords);
}

PyMethodDef g_spy_method = {
    "spy", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(spy)), METH_FASTCALL | METH_KEYWORDS,
    "spy(name, value, module=None)\n--\n\n"
    "Records a value from inside a forward while a trace or a context is active; does nothing otherwise.\n\n"
    "The name has the path of the module whose forward it is called in, blocks.0.attn.scores, or of `module` where\n"
    "that is given. Outside of a trace and a context it costs less than an empty Python function, so it may stay."};

}  // namespace

void init_probe(nb::module_& m) {
  m.def("fingerprint", &fingerprint, nb::arg("tensor").none(),
        nb::sig("def fingerprint(tensor: object | None) -> bytes | None"),
        "The 16 bytes that identify a tensor's content, or None for what has none.");
  m.def("sample", &sample, nb::arg("tensor"), nb::sig("def sample(tensor: object) -> int | None"),
        "A number that differs where most elements of a tensor were changed; of a few of them only.");
  m.def("spy_listen", [](int change) { g_listeners.fetch_add(change, std::memory_order_relaxed); }, nb::arg("change"));
  m.attr("spy") = nb::steal(PyCFunction_NewEx(&g_spy_method, m.ptr(), nb::str("tenscope").ptr()));
}
