// A partial diff as bytes, for another process. Overview: a struct is the sequence of its members, which fields() lists
// (a member that is missing there does not compile), a container its size and its elements, a number 8 bytes, the
// lowest first. The bytes are for the same version of tenscope: kFormat changes with every change of what is in them.
#include <bit>
#include <concepts>
#include <memory>
#include <tuple>
#include <type_traits>

#include "compare/partial_diff.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

constexpr std::string_view kFormat = "tenscope partial diff 5\n";

template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

auto fields(Is<DiffPlace> auto& one) {
  auto& [root, module, name, io, phase, cls, site, step, call, rank, is_function] = one;
  return std::tie(root, module, name, io, phase, cls, site, step, call, rank, is_function);
}

auto fields(Is<DiffEvent> auto& one) {
  auto& [name, step, call, rank, slice] = one;
  return std::tie(name, step, call, rank, slice);
}

auto fields(Is<DiffPart> auto& one) {
  auto& [run, rank, pass, rel_l2, like, like_pass] = one;
  return std::tie(run, rank, pass, rel_l2, like, like_pass);
}

auto fields(Is<DiffMetrics> auto& one) {
  auto& [dtype_a, dtype_b, shape_a, shape_b, count, differing, max_abs, rel_max, rel_l2, correlation, rel_l2_error,
         nan_a, nan_b, inf_a, inf_b, worst_index, row, rows, worst_a, worst_b, ranges, layout, relation, relation_numpy,
         obstacle, assembled_a, assembled_b, parts, is_sum_missing] = one;
  return std::tie(dtype_a, dtype_b, shape_a, shape_b, count, differing, max_abs, rel_max, rel_l2, correlation,
                  rel_l2_error, nan_a, nan_b, inf_a, inf_b, worst_index, row, rows, worst_a, worst_b, ranges, layout,
                  relation, relation_numpy, obstacle, assembled_a, assembled_b, parts, is_sum_missing);
}

auto fields(Is<DiffReason> auto& one) {
  auto& [cause, module, tensor, changed_input, step, ended, exception, doubt, is_of_all, is_partial, has_inputs,
         has_parameters, has_submodules, noise_before, other_dtype] = one;
  return std::tie(cause, module, tensor, changed_input, step, ended, exception, doubt, is_of_all, is_partial,
                  has_inputs, has_parameters, has_submodules, noise_before, other_dtype);
}

auto fields(Is<DiffDistribution> auto& one) {
  auto& [is_independent, is_same, mean_a, mean_b, std_a, std_b, zeros_a, zeros_b] = one;
  return std::tie(is_independent, is_same, mean_a, mean_b, std_a, std_b, zeros_a, zeros_b);
}

auto fields(Is<DiffUpdate> auto& one) {
  auto& [optimizer_a, optimizer_b, moved_a, moved_b, moved_both, flipped, ratio] = one;
  return std::tie(optimizer_a, optimizer_b, moved_a, moved_b, moved_both, flipped, ratio);
}

auto fields(Is<DiffAttribute> auto& one) {
  auto& [root, module, name, a, b, step, call] = one;
  return std::tie(root, module, name, a, b, step, call);
}

auto fields(Is<DiffCode> auto& one) {
  auto& [class_a, class_b, site_a, site_b, wrappers_a, wrappers_b, is_forward_elsewhere, source, why_unknown, lines,
         left_out, removed, added, elsewhere, attributes] = one;
  return std::tie(class_a, class_b, site_a, site_b, wrappers_a, wrappers_b, is_forward_elsewhere, source, why_unknown,
                  lines, left_out, removed, added, elsewhere, attributes);
}

auto fields(Is<DiffOrigin> auto& one) {
  auto& [place, seen_in, seen_as, event_a, event_b, metrics, distribution, update, last_agreeing, reason, tensors,
         code] = one;
  return std::tie(place, seen_in, seen_as, event_a, event_b, metrics, distribution, update, last_agreeing, reason,
                  tensors, code);
}

auto fields(Is<DiffUnmatched> auto& one) {
  auto& [side, root, module, cls, name, events] = one;
  return std::tie(side, root, module, cls, name, events);
}

auto fields(Is<DiffRenamed> auto& one) {
  auto& [root, a, b] = one;
  return std::tie(root, a, b);
}

auto fields(Is<DiffModule> auto& one) {
  auto& [root, module, is_bit_equal, is_within_tolerance, is_unknown, step, phase] = one;
  return std::tie(root, module, is_bit_equal, is_within_tolerance, is_unknown, step, phase);
}

auto fields(Is<DiffContentPair> auto& one) {
  auto& [a, b, step, call, how, layout, is_part, error] = one;
  return std::tie(a, b, step, call, how, layout, is_part, error);
}

auto fields(Is<DiffNote> auto& one) {
  auto& [kind, side, subject, a, b, count] = one;
  return std::tie(kind, side, subject, a, b, count);
}

auto fields(Is<DiffEngineNoise> auto& one) {
  auto& [weights, largest, tensor] = one;
  return std::tie(weights, largest, tensor);
}

auto fields(Is<BudgetSums::Module> auto& one) {
  auto& [cls, order, calls, assumed, unknown, arriving, leaving, adds, handed_on, share] = one;
  return std::tie(cls, order, calls, assumed, unknown, arriving, leaving, adds, handed_on, share);
}

auto fields(Is<BudgetSums::Root> auto& one) {
  auto& [order, calls, left_out, with_error, leaving, from_inputs, not_traced] = one;
  return std::tie(order, calls, left_out, with_error, leaving, from_inputs, not_traced);
}

auto fields(Is<BudgetSums> auto& one) {
  auto& [modules, roots] = one;
  return std::tie(modules, roots);
}

auto fields(Is<Moment> auto& one) {
  auto& [rank, ordinal, is_initial, step, phase, position] = one;
  return std::tie(rank, ordinal, is_initial, step, phase, position);
}

auto fields(Is<Start> auto& one) {
  auto& [moment, is_cause, is_exchanged, is_another_draw, tensors, origin] = one;
  return std::tie(moment, is_cause, is_exchanged, is_another_draw, tensors, origin);
}

template <class T>
concept AtSomeMoment = requires(T& one) { one.moment, one.value; };
auto fields(AtSomeMoment auto& one) {
  auto& [moment, value] = one;
  return std::tie(moment, value);
}

template <class T>
concept OfSomeRank = requires(T& one) { one.rank, one.index, one.value; };
auto fields(OfSomeRank auto& one) {
  auto& [rank, index, value] = one;
  return std::tie(rank, index, value);
}

auto fields(Is<PartialDiff> auto& one) {
  auto& [a, b, max_origins, ranks, in_a, in_b, starts, first_bit_difference, first_unknown, coarser_dtypes,
         first_beyond_rounding, engine_noise, settings_a, settings_b, modules, renamed, attributes, unmatched, notes,
         content_pairs, budget, unused_rules, total_a, total_b, compared, bit_equal, same_values, noise, unknown,
         consequences, idle, compared_results, judged_by_profile, noise_profiles, has_results, are_weights_in_doubt] =
      one;
  return std::tie(a, b, max_origins, ranks, in_a, in_b, starts, first_bit_difference, first_unknown, coarser_dtypes,
                  first_beyond_rounding, engine_noise, settings_a, settings_b, modules, renamed, attributes, unmatched,
                  notes, content_pairs, budget, unused_rules, total_a, total_b, compared, bit_equal, same_values, noise,
                  unknown, consequences, idle, compared_results, judged_by_profile, noise_profiles, has_results,
                  are_weights_in_doubt);
}

template <class T>
concept Number = std::integral<T> || std::is_enum_v<T> || std::same_as<T, double>;
template <class T>
concept Table = requires { typename T::mapped_type; };
template <class T>
concept Set = std::same_as<T, std::set<int>>;
template <class T>
concept Fields = requires(T& one) { fields(one); };
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsShared : std::false_type {};
template <class T>
struct IsShared<std::shared_ptr<const T>> : std::true_type {};
template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class T>
struct IsArray : std::false_type {};
template <class T, std::size_t N>
struct IsArray<std::array<T, N>> : std::true_type {};

template <Number T>
std::uint64_t bits_of(T value) {
  if constexpr (std::same_as<T, double>)
    return std::bit_cast<std::uint64_t>(value);
  else
    return static_cast<std::uint64_t>(value);
}

template <Number T>
T number_of(std::uint64_t bits) {
  if constexpr (std::same_as<T, double>)
    return std::bit_cast<double>(bits);
  else
    return static_cast<T>(bits);
}

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <class T>
  void write(const T& value) {
    if constexpr (Number<T>) {
      const std::uint64_t bits = bits_of(value);
      for (int shift = 0; shift < 64; shift += 8) out_ += static_cast<char>(bits >> shift);
    } else if constexpr (std::same_as<T, std::string>) {
      write(value.size());
      out_ += value;
    } else if constexpr (IsOptional<T>::value || IsShared<T>::value) {
      write(static_cast<bool>(value));
      if (value) write(*value);
    } else if constexpr (IsTuple<T>::value) {
      std::apply([this](const auto&... member) { (this->write(member), ...); }, value);
    } else if constexpr (Fields<const T>) {
      std::apply([this](const auto&... member) { (this->write(member), ...); }, fields(value));
    } else {
      if constexpr (!IsArray<T>::value) write(value.size());
      for (const auto& one : value)
        if constexpr (Table<T>) {
          write(one.first);
          write(one.second);
        } else {
          write(one);
        }
    }
  }

 private:
  std::string& out_;
};

class Parser {
 public:
  explicit Parser(std::string_view bytes) : left_(bytes) {}
  bool is_at_end() const { return left_.empty(); }

  template <class T>
  void read(T& value) {
    if constexpr (Number<T>) {
      std::uint64_t bits = 0;
      const std::string_view bytes = take(8);
      for (std::size_t i = 0; i < 8; ++i) bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
      value = number_of<T>(bits);
    } else if constexpr (std::same_as<T, std::string>) {
      value = take(size());
    } else if constexpr (IsOptional<T>::value) {
      if (read<bool>())
        read(value.emplace());
      else
        value.reset();
    } else if constexpr (IsShared<T>::value) {
      using Pointee = std::remove_const_t<typename T::element_type>;
      value = read<bool>() ? std::make_shared<const Pointee>(read<Pointee>()) : nullptr;
    } else if constexpr (IsTuple<T>::value) {
      std::apply([this](auto&... member) { (this->read(member), ...); }, value);
    } else if constexpr (Fields<T>) {
      std::apply([this](auto&... member) { (this->read(member), ...); }, fields(value));
    } else if constexpr (IsArray<T>::value) {
      for (auto& one : value) read(one);
    } else {
      value.clear();
      for (std::size_t left = size(); left > 0; --left)
        if constexpr (Table<T>) {
          auto key = read<typename T::key_type>();
          value.emplace_hint(value.end(), std::move(key), read<typename T::mapped_type>());
        } else if constexpr (Set<T>) {
          value.insert(read<int>());
        } else {
          read(value.emplace_back());
        }
    }
  }

 private:
  template <class T>
  T read() {
    T value{};
    read(value);
    return value;
  }

  // Of a text or a container: no element is smaller than a byte.
  std::size_t size() {
    const auto count = read<std::size_t>();
    if (count > left_.size()) fail();
    return count;
  }

  std::string_view take(std::size_t count) {
    if (count > left_.size()) fail();
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  [[noreturn]] static void fail() {
    throw Error(ErrorCode::Corrupt, "cannot read a partial diff: its bytes end too early");
  }

  std::string_view left_;
};

}  // namespace

std::string PartialDiff::to_bytes() const {
  std::string bytes(kFormat);
  Writer(bytes).write(*this);
  return bytes;
}

PartialDiff PartialDiff::from_bytes(std::string_view bytes) {
  if (!bytes.starts_with(kFormat))
    throw Error(ErrorCode::Version,
                "cannot read a partial diff: it was made by another version of tenscope, or is something else");
  PartialDiff diff;
  Parser parser(bytes.substr(kFormat.size()));
  parser.read(diff);
  if (!parser.is_at_end())
    throw Error(ErrorCode::Corrupt, "cannot read a partial diff: there are bytes behind its end");
  return diff;
}

}  // namespace tenscope::compare
