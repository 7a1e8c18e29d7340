// Overview. One walk over two trees (Walk) finds the pairs; a sink decides what becomes of them: Judge stops at the
// first difference and judges as NumPy's allclose(a, b), Collector measures every tensor and keeps how b differs from
// a.
#include "compare/value_diff.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "compare/exact_integer.hpp"
#include "format/value.hpp"
#include "tenscope/error.hpp"
#include "tenscope/explain.hpp"

namespace tenscope {
namespace {

bool is_number(ValueKind kind) {
  return kind == ValueKind::Bool || kind == ValueKind::Int || kind == ValueKind::BigInt || kind == ValueKind::Float ||
         kind == ValueKind::Complex;
}
bool is_integer(ValueKind kind) {
  return kind == ValueKind::Bool || kind == ValueKind::Int || kind == ValueKind::BigInt;
}

std::string integer_text(const Value& value) {
  if (const auto* x = value.get_if<bool>()) return *x ? "1" : "0";
  if (const auto* x = value.get_if<std::int64_t>()) return fmt::format("{}", *x);
  return value.get<BigInt>().digits;
}

std::complex<long double> number_of(const Value& value) {
  if (const auto* x = value.get_if<double>()) return *x;
  if (const auto* x = value.get_if<std::complex<double>>()) return {x->real(), x->imag()};
  return std::strtold(integer_text(value).c_str(), nullptr);
}

// Of numbers that are the same as long doubles: a larger integer is rounded there.
bool is_same_number(const Value& value, const Value& reference) {
  if (value.kind() == ValueKind::BigInt)
    return reference.kind() == ValueKind::Float &&
           compare::is_integer(reference.get<double>(), value.get<BigInt>().digits);
  return reference.kind() != ValueKind::BigInt || is_same_number(reference, value);
}

bool numbers_agree(const Value& value, const Value& reference, kernels::Tolerance tolerance, bool equal_nan) {
  if (is_integer(value.kind()) && is_integer(reference.kind())) return integer_text(value) == integer_text(reference);
  const auto x = number_of(value);
  const auto y = number_of(reference);
  if (x == y && is_same_number(value, reference)) return true;
  const auto is_nan = [](const auto& z) { return std::isnan(z.real()) || std::isnan(z.imag()); };
  if (is_nan(x) || is_nan(y)) return equal_nan && is_nan(x) && is_nan(y);
  const bool is_finite = std::isfinite(y.real()) && std::isfinite(y.imag());
  return is_finite && std::abs(x - y) <= tolerance.absolute + tolerance.relative * std::abs(y);
}

// A plain number as a tensor of no dimensions, or null where no dtype holds it.
std::optional<Tensor> as_tensor(const Value& value) {
  Tensor tensor;
  std::byte* bytes = nullptr;
  tensor.storage = allocate_storage(16, &bytes);
  tensor.data = bytes;
  const auto put = [&](DType dtype, const auto& x) {
    tensor.dtype = dtype;
    std::memcpy(bytes, &x, sizeof x);
    return tensor;
  };
  if (const auto* x = value.get_if<bool>()) return put(DType::Bool, *x);
  if (const auto* x = value.get_if<std::int64_t>()) return put(DType::I64, *x);
  if (const auto* x = value.get_if<double>()) return put(DType::F64, *x);
  if (const auto* x = value.get_if<std::complex<double>>()) return put(DType::C128, *x);
  return std::nullopt;
}

std::string join(const std::string& path, const std::string& part) { return path.empty() ? part : path + "." + part; }

// Text that is equal for equal keys of a dict or members of a set: 1, 1.0 and True are one key, as in Python.
std::string key_text(const Value& key) {
  if (const auto* text = key.get_if<std::string>()) return "'" + *text;
  if (is_integer(key.kind())) return integer_text(key);
  if (const auto* x = key.get_if<double>()) {
    return std::trunc(*x) == *x && std::abs(*x) < 1e18 ? fmt::format("{}", static_cast<std::int64_t>(*x))
                                                       : fmt::format("{}", *x);
  }
  if (const auto* bytes = key.get_if<Bytes>()) return "b'" + bytes->data;
  if (const auto* items = key.items()) {
    std::string text = "(";
    for (const auto& item : *items) text += key_text(item) + "\x1f";
    return text + ")";
  }
  return brief_text(key);
}

std::string name_part(const Value& key) {
  if (const auto* text = key.get_if<std::string>()) return *text;
  return brief_text(key);
}

// The sink of a walk: is_done() ends it early.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void tensors(const std::string& path, const Tensor& a, const Tensor& b) = 0;
  virtual void numbers(const std::string& path, const Value& a, const Value& b) = 0;
  virtual void plain(const std::string& path, const Value& a, const Value& b, bool is_same) = 0;
  virtual void one_sided(const std::string& path, const Value& value, bool in_a) = 0;
  virtual bool is_done() const = 0;
};

class Walk {
 public:
  explicit Walk(Sink& sink) : sink_(sink) {}

  void visit(const std::string& path, const Value& a, const Value& b) {
    if (sink_.is_done()) return;
    const ValueKind x = a.kind();
    const ValueKind y = b.kind();
    if (x == ValueKind::Tensor || y == ValueKind::Tensor) return visit_tensors(path, a, b);
    if (is_number(x) && is_number(y)) return sink_.numbers(path, a, b);
    if (x != y) return sink_.plain(path, a, b, false);
    switch (x) {
      case ValueKind::List:
        return visit_items(path, a.get<List>().items, b.get<List>().items);
      case ValueKind::Tuple:
        return visit_items(path, a.get<Tuple>().items, b.get<Tuple>().items);
      case ValueKind::Dict:
        return visit_dicts(path, a.get<Dict>(), b.get<Dict>());
      case ValueKind::Set:
        return visit_sets(path, a, b);
      case ValueKind::Object:
        return visit_objects(path, a, b);
      case ValueKind::Text:
        return sink_.plain(path, a, b, a.get<std::string>() == b.get<std::string>());
      case ValueKind::Bytes:
        return sink_.plain(path, a, b, a.get<Bytes>().data == b.get<Bytes>().data);
      default:
        return sink_.plain(path, a, b, true);  // None
    }
  }

 private:
  void visit_tensors(const std::string& path, const Value& a, const Value& b) {
    const auto* x = a.get_if<Tensor>();
    const auto* y = b.get_if<Tensor>();
    if (x != nullptr && y != nullptr) return sink_.tensors(path, *x, *y);
    if (x != nullptr && is_number(b.kind())) {
      if (const auto tensor = as_tensor(b)) return sink_.tensors(path, *x, *tensor);
    }
    if (y != nullptr && is_number(a.kind())) {
      if (const auto tensor = as_tensor(a)) return sink_.tensors(path, *tensor, *y);
    }
    sink_.plain(path, a, b, false);
  }

  void visit_items(const std::string& path, const std::vector<Value>& a, const std::vector<Value>& b) {
    const std::size_t common = std::min(a.size(), b.size());
    for (std::size_t i = 0; i < common && !sink_.is_done(); ++i) visit(join(path, fmt::format("{}", i)), a[i], b[i]);
    for (std::size_t i = common; i < a.size(); ++i) sink_.one_sided(join(path, fmt::format("{}", i)), a[i], true);
    for (std::size_t i = common; i < b.size(); ++i) sink_.one_sided(join(path, fmt::format("{}", i)), b[i], false);
  }

  void visit_dicts(const std::string& path, const Dict& a, const Dict& b) {
    std::map<std::string, const std::pair<Value, Value>*> left;
    for (const auto& entry : b.entries) left[key_text(entry.first)] = &entry;
    for (const auto& [key, value] : a.entries) {
      if (sink_.is_done()) return;
      const auto found = left.find(key_text(key));
      if (found == left.end()) {
        sink_.one_sided(join(path, name_part(key)), value, true);
        continue;
      }
      visit(join(path, name_part(key)), value, found->second->second);
      left.erase(found);
    }
    for (const auto& entry : b.entries) {
      if (left.contains(key_text(entry.first)))
        sink_.one_sided(join(path, name_part(entry.first)), entry.second, false);
    }
  }

  void visit_sets(const std::string& path, const Value& a, const Value& b) {
    std::map<std::string, int> members;
    for (const auto& item : a.get<Set>().items) members[key_text(item)] += 1;
    for (const auto& item : b.get<Set>().items) members[key_text(item)] -= 1;
    bool is_same = true;
    for (const auto& [key, balance] : members) is_same &= balance == 0;
    sink_.plain(path, a, b, is_same);
  }

  void visit_objects(const std::string& path, const Value& a, const Value& b) {
    const Object& x = a.get<Object>();
    const Object& y = b.get<Object>();
    const auto are_both = [](const auto& p, const auto& q) { return (p == nullptr) == (q == nullptr); };
    if (x.type != y.type || !are_both(x.args, y.args) || !are_both(x.state, y.state))
      return sink_.plain(path, a, b, false);
    if (x.args != nullptr) visit(path, *x.args, *y.args);
    if (x.state != nullptr) visit(path, *x.state, *y.state);
    if (x.args == nullptr && x.state == nullptr) sink_.plain(path, a, b, true);
  }

  Sink& sink_;
};

class Judge : public Sink {
 public:
  explicit Judge(const kernels::CompareOptions& options) : options_(options) {}
  void tensors(const std::string&, const Tensor& a, const Tensor& b) override {
    is_same_ = kernels::all_close(a.view(), b.view(), options_);
  }
  void numbers(const std::string&, const Value& a, const Value& b) override {
    is_same_ = numbers_agree(a, b, options_.tolerance, options_.equal_nan);
  }
  void plain(const std::string&, const Value&, const Value&, bool is_same) override { is_same_ = is_same; }
  void one_sided(const std::string&, const Value&, bool) override { is_same_ = false; }
  bool is_done() const override { return !is_same_; }

 private:
  const kernels::CompareOptions& options_;
  bool is_same_ = true;
};

class Collector : public Sink {
 public:
  Collector(ValueDiff& diff, std::string prefix, const DiffOptions& options, const NamedProgress& progress)
      : diff_(diff), prefix_(std::move(prefix)), options_(options), progress_(progress) {}

  void tensors(const std::string& path, const Tensor& a, const Tensor& b) override {
    ++diff_.tensors;
    DiffOptions options = options_;
    const std::string name = name_of(path);
    if (progress_) {
      const std::int64_t total = element_count(a.shape);
      progress_(name, 0, total);
      options.progress = [this, &name, total](std::int64_t done) { progress_(name, done, total); };
    }
    auto found = std::make_shared<TensorDiff>(diff_tensors(a.view(), b.view(), options));
    explain_if_cheap(a.view(), b.view(), *found);
    add({name, found->is_different() ? EntryStatus::Different : EntryStatus::Same, summary_line(*found), found});
  }

  // A search takes longer than a comparison: the first few tensors that differ, and none that is large.
  void explain_if_cheap(const TensorView& a, const TensorView& b, TensorDiff& found) {
    constexpr int kMostExplained = 8;
    constexpr std::int64_t kMostElements = 1 << 24;
    const bool is_small = element_count(a.shape) <= kMostElements && element_count(b.shape) <= kMostElements;
    if (!found.is_different() || !is_small || explained_ == kMostExplained) return;
    ++explained_;
    Explanation explanation = explain(a, b);
    if (!explanation.found()) return;
    if (explanation.relation == "equal" && found.nan_both > 0)
      explanation.words += ", with NaN in the same places: NaN differs from NaN without --equal-nan (equal_nan=True)";
    found.relation = std::move(explanation.words);
    found.relation_numpy = std::move(explanation.numpy);
  }

  void numbers(const std::string& path, const Value& a, const Value& b) override {
    const auto tolerance = tolerance_for(DType::F64, DType::F64, options_);
    plain(path, a, b, numbers_agree(b, a, tolerance, options_.equal_nan));
  }

  void plain(const std::string& path, const Value& a, const Value& b, bool is_same) override {
    ++diff_.values;
    if (is_same) return;
    std::string x = brief_text(a);
    std::string y = brief_text(b);
    if (x == y) x = fmt::format("{} ({})", x, to_string(a.kind())), y = fmt::format("{} ({})", y, to_string(b.kind()));
    add({name_of(path), EntryStatus::Different, fmt::format("{} became {}", x, y), nullptr});
  }

  void one_sided(const std::string& path, const Value& value, bool in_a) override {
    ++diff_.one_sided;
    add({name_of(path), in_a ? EntryStatus::OnlyA : EntryStatus::OnlyB,
         fmt::format("only in {}: {}", in_a ? "a" : "b", brief_text(value)), nullptr});
  }

  bool is_done() const override { return false; }

 private:
  std::string name_of(const std::string& path) const {
    if (prefix_.empty()) return path;
    return path.empty() ? prefix_ : prefix_ + ": " + path;
  }

  void add(DiffEntry entry) {
    diff_.different += entry.status != EntryStatus::Same;
    diff_.entries.push_back(std::move(entry));
  }

  ValueDiff& diff_;
  std::string prefix_;
  const DiffOptions& options_;
  const NamedProgress& progress_;
  int explained_ = 0;
};

}  // namespace

std::string_view to_string(EntryStatus status) noexcept {
  switch (status) {
    case EntryStatus::Same:
      return "same";
    case EntryStatus::Different:
      return "different";
    case EntryStatus::OnlyA:
      return "only_a";
    case EntryStatus::OnlyB:
      return "only_b";
    case EntryStatus::Trouble:
      return "trouble";
  }
  return "";
}

std::string brief_text(const Value& value) {
  constexpr std::size_t kMaxText = 60;
  const auto quoted = [](const std::string& text) {
    return text.size() <= kMaxText ? fmt::format("'{}'", text)
                                   : fmt::format("'{}…' ({} bytes)", text.substr(0, kMaxText), text.size());
  };
  switch (value.kind()) {
    case ValueKind::None:
      return "None";
    case ValueKind::Bool:
      return value.get<bool>() ? "True" : "False";
    case ValueKind::Int:
    case ValueKind::BigInt:
      return integer_text(value);
    case ValueKind::Float:
    case ValueKind::Complex:
      return element_text(as_tensor(value)->view(), 0);
    case ValueKind::Text:
      return quoted(value.get<std::string>());
    case ValueKind::Bytes:
      return fmt::format("{} bytes", value.get<Bytes>().data.size());
    case ValueKind::Tensor: {
      const auto& tensor = value.get<Tensor>();
      return fmt::format("{} [{}]", to_string(tensor.dtype), fmt::join(tensor.shape, ", "));
    }
    case ValueKind::Dict:
      return fmt::format("dict of {}", value.get<Dict>().entries.size());
    case ValueKind::Object:
      return value.get<Object>().type;
    default:
      return fmt::format("{} of {}", to_string(value.kind()), value.items()->size());
  }
}

bool same_values(const Value& a, const Value& b, const kernels::CompareOptions& options) {
  Judge judge(options);
  Walk(judge).visit("", a, b);
  return !judge.is_done();
}

void add_values(ValueDiff& diff, const std::string& prefix, const Value& a, const Value& b, const DiffOptions& options,
                const NamedProgress& progress) {
  Collector collector(diff, prefix, options, progress);
  Walk(collector).visit("", a, b);
}

ValueDiff diff_values(const Value& a, const Value& b, const DiffOptions& options, const NamedProgress& progress) {
  ValueDiff diff;
  add_values(diff, "", a, b, options, progress);
  return diff;
}

}  // namespace tenscope
