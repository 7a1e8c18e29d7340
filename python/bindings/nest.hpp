#pragma once

// Overview: one way through a nest of Python objects, for recording, for digests and for snapshots. class_of says what
// an object is, each_child gives what is directly in it, and a NestWalk goes down with the limits that keep a walk
// finite: it knows the nests around it, so that cycles end, and counts. What a walk leaves out it says (Cut), and
// whoever walks must leave a trace of it.
//
// While a nest is walked Python code may run (properties, keys' __str__, a device copy) that changes it: each child is
// held while it is visited, and a dict whose size has changed meanwhile is a Cut.

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/object.hpp"

namespace tenscope::python {

enum class TypeClass : std::uint8_t {
  Scalar,  // numbers, text, bytes, None and their kin
  Torch,
  Array,
  List,
  Tuple,
  Dict,
  Set,
  Deque,
  Fields,     // a dataclass
  Namespace,  // types.SimpleNamespace
  Mapping,    // any other object with keys() and items
  Opaque
};

TypeClass class_of(PyObject* object);  // cached by type

struct NestLimits {
  std::size_t depth;
  std::size_t items;  // children, at all levels
};
inline constexpr NestLimits kKeepLimits{64, 65'536};     // of what is kept: events, snapshots
inline constexpr NestLimits kReadLimits{64, 1'000'000};  // of what is only read, to compare it

// What a walk left out.
struct Cut {
  enum class Kind : std::uint8_t { Cycle, TooDeep, TooMany, Changed, Unreadable };
  Kind kind;
  std::size_t depth = 0;     // Cycle: of the nest it refers back to. TooDeep: the limit
  std::size_t items = 0;     // TooMany: the limit
  std::size_t left_out = 0;  // TooMany: how many children of this nest
  std::string error;         // Unreadable: why

  std::string reason() const;
};

struct Child {
  PyObject* key;  // of a dict, dataclass, named tuple or mapping; else null. Held
  PyObject* value;
  std::size_t index;
  std::size_t size;  // of the nest
};

// The children of a nest, made ready to be gone through: a list, tuple or dict as it is, of others a copy.
class Children {
 public:
  Children(PyObject* nest, TypeClass kind);

  const std::string& error() const { return error_; }  // why it cannot be read; else empty
  bool changed() const { return dict_ && PyDict_GET_SIZE(dict_.get()) != static_cast<Py_ssize_t>(size_); }

  // The next one into `child`, held until the one after it; false at the end. A dataclass' field that raises is told
  // in `field_error`, with no value; one that is not there is passed over.
  bool next(Child& child, std::string& field_error);

 private:
  void take_dict(Ref dict);

  Ref object_;    // whose attributes the keys of dict_ are
  Ref dict_;      // dict, fields, namespace
  Ref sequence_;  // list or tuple; a mapping's list of pairs
  Ref names_;     // of a named tuple
  bool pairs_ = false;
  std::size_t index_ = 0, size_ = 0;
  Py_ssize_t position_ = 0;
  Ref key_, value_;
  std::string error_;
};

class NestWalk {
 public:
  explicit NestWalk(NestLimits limits) : limits_(limits) {}

  std::size_t depth() const { return above_.size(); }

  // Counts children that need no walk; false where there are too many of them.
  bool take_items(std::size_t count) {
    if (count > limits_.items - items_) return false;
    items_ += count;
    return true;
  }

  // Calls each(Child) for the children of a nest in their order, and cut(Cut) for what is left out. Returns how many
  // there were.
  template <class Each, class OnCut>
  std::size_t descend(PyObject* nest, TypeClass kind, Each&& each, OnCut&& cut) {
    for (std::size_t i = 0; i < above_.size(); ++i)
      if (above_[i] == nest) return cut(Cut{.kind = Cut::Kind::Cycle, .depth = i}), 0;
    if (above_.size() >= limits_.depth) return cut(Cut{.kind = Cut::Kind::TooDeep, .depth = limits_.depth}), 0;
    if ((kind == TypeClass::List || kind == TypeClass::Tuple) && (PyList_CheckExact(nest) || PyTuple_CheckExact(nest)))
      return descend_plain(nest, each, cut);
    Children children(nest, kind);
    if (!children.error().empty()) return cut(Cut{.kind = Cut::Kind::Unreadable, .error = children.error()}), 0;
    const Above above(above_, nest);
    std::size_t count = 0;
    Child child{};
    std::string error;
    for (; children.next(child, error); ++count) {
      if (items_ >= limits_.items) {
        cut(Cut{.kind = Cut::Kind::TooMany, .items = limits_.items, .left_out = child.size - child.index});
        return count;
      }
      ++items_;
      if (child.value) {
        each(child);
      } else {
        cut(Cut{.kind = Cut::Kind::Unreadable, .error = utf8(child.key) + ": " + error});
      }
    }
    if (children.changed()) cut(Cut{.kind = Cut::Kind::Changed});
    return count;
  }

 private:
  // Lists and tuples of exactly that type, the most frequent and the longest: without Children.
  template <class Each, class OnCut>
  std::size_t descend_plain(PyObject* nest, Each&& each, OnCut&& cut) {
    const Above above(above_, nest);
    for (Py_ssize_t i = 0; i < Py_SIZE(nest); ++i) {  // a list may change meanwhile
      const auto index = static_cast<std::size_t>(i), size = static_cast<std::size_t>(Py_SIZE(nest));
      if (items_ >= limits_.items) {
        cut(Cut{.kind = Cut::Kind::TooMany, .items = limits_.items, .left_out = size - index});
        return index;
      }
      ++items_;
      const Ref value = Ref::share(PyList_CheckExact(nest) ? PyList_GET_ITEM(nest, i) : PyTuple_GET_ITEM(nest, i));
      each(Child{nullptr, value.get(), index, size});
    }
    return static_cast<std::size_t>(Py_SIZE(nest));
  }

  struct Above {
    Above(std::vector<PyObject*>& above, PyObject* nest) : above_(above) { above_.push_back(nest); }
    ~Above() { above_.pop_back(); }
    Above(const Above&) = delete;
    Above& operator=(const Above&) = delete;
    std::vector<PyObject*>& above_;
  };

  NestLimits limits_;
  std::size_t items_ = 0;
  std::vector<PyObject*> above_;  // the nests around, each held by whoever visits it
};

}  // namespace tenscope::python
