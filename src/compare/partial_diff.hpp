#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "compare/budget_sums.hpp"
#include "compare/settings.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// Overview. Ranks are compared one by one; what is found of some of them is a PartialDiff, of which parts of other
// ranks can be merged in any order, also when they were made by other processes. Only what ranks have to do with each
// other is left to its result: gradients are exchanged, so that one rank's mistake may be another's first difference.

// Where an event stands. Events of one process are in the order of execution. Those of two are ordered by step and
// phase alone: which was first within one phase is not known, and the position is then only a place in a list.
struct Moment {
  int rank = 0;
  std::size_t ordinal = 0;  // of the process, among those of its rank
  bool is_initial = false;  // an initial value: those come before all else
  std::int64_t step = 0;    // of a process the furthest so far, also where its program goes back to an earlier one
  Phase phase = Phase::None;
  std::size_t position = 0;  // in the order of execution

  bool is_same_process(const Moment& other) const { return rank == other.rank && ordinal == other.ordinal; }
  auto time() const { return std::tuple(!is_initial, step, phase); }
  friend bool operator<(const Moment& x, const Moment& y) {
    const auto key = [](const Moment& m) { return std::tuple(m.time(), m.position, m.rank, m.ordinal); };
    return key(x) < key(y);
  }
};

// A place that starts a difference.
struct Start {
  Moment moment;
  bool is_cause = false;      // other ranks get to feel it: it is of a forward
  bool is_exchanged = false;  // it may come from another rank: of a backward, an optimizer, a stage's input
  bool is_another_draw = false;
  std::size_t tensors = 1;
  std::shared_ptr<const DiffOrigin> origin;  // missing where it is sure not to be listed
};

// What was found of ranks so far, as far as it says what need not be described of others.
class Known {
 public:
  explicit Known(std::size_t max_origins) : max_origins_(max_origins) {}

  // Whether a place may be among those that are listed, or the first bit difference be at that moment.
  bool may_list(const Start& start) const;
  bool may_be_first_bit_difference(const Moment& moment) const;
  // Places of one process are added in their order.
  void add(const Start& start);
  void add_bit_difference(const Moment& moment) { first_bit_difference_ = moment; }

 private:
  std::size_t max_origins_;
  std::vector<Moment> certain_;  // the first that are listed whatever other ranks have done; at most max_origins
  std::map<std::pair<int, std::size_t>, std::size_t> of_process_;  // how many starts it has
  std::optional<Moment> first_bit_difference_;
};

template <class T>
struct AtMoment {
  Moment moment;
  T value;
};

// Something that ranks may have in common. It is listed where the lowest of these ranks has it.
template <class T>
struct OfRank {
  int rank = 0;
  std::size_t index = 0;  // in that rank's list
  T value;
};

struct PartialDiff {
  std::string a, b;  // the runs' folders
  std::size_t max_origins = RunDiffOptions{}.max_origins;
  std::set<int> ranks;        // those that were compared
  std::set<int> in_a, in_b;   // of these, those that recorded anything in each run
  std::vector<Start> starts;  // in the order of each process
  std::optional<AtMoment<DiffOrigin>> first_bit_difference;
  std::optional<AtMoment<DiffPlace>> first_unknown;
  std::map<int, std::string> coarser_dtypes;                  // of ranks whose differences begin with one
  std::optional<AtMoment<DiffOrigin>> first_beyond_rounding;  // of these ranks: the first beyond its rounding
  std::optional<OfRank<DiffEngineNoise>> engine_noise;
  std::map<std::string, OfRank<std::string>> settings_a, settings_b;
  std::map<std::tuple<std::string, std::string>, OfRank<DiffModule>> modules;
  std::map<std::tuple<std::string, std::string, std::string>, OfRank<DiffRenamed>> renamed;
  std::map<std::tuple<std::string, std::string, std::string>, OfRank<DiffAttribute>> attributes;
  std::map<std::tuple<int, std::string, std::string, std::string>, OfRank<DiffUnmatched>> unmatched;
  std::map<std::tuple<DiffNote::Kind, int, std::string, std::string, std::string, std::size_t>, OfRank<DiffNote>> notes;
  std::vector<OfRank<DiffContentPair>> content_pairs;
  std::optional<BudgetSums> budget;                                        // where it was asked for
  std::optional<std::map<std::string, OfRank<std::string>>> unused_rules;  // with the reason; nothing: none was tried
  std::size_t total_a = 0, total_b = 0, compared = 0, bit_equal = 0, same_values = 0, noise = 0, unknown = 0,
              consequences = 0, idle = 0;
  std::size_t compared_results = 0;   // of these, outputs, losses and values recorded by hand
  std::size_t judged_by_profile = 0;  // that differ, and were judged by the measured noise of their place
  std::vector<std::string> noise_profiles;
  bool has_results = false;           // such are in one of the runs, at least
  bool are_weights_in_doubt = false;  // some changed places or lie otherwise, and nothing made with them was paired

  void add(OfRank<DiffModule> module);
  void add(OfRank<DiffRenamed> renamed);
  void add(OfRank<DiffAttribute> attribute);
  void add(OfRank<DiffUnmatched> unmatched);
  void add(OfRank<DiffNote> note);

  // Throws InvalidArgument where both have the same rank, or are of other runs.
  void merge(PartialDiff other);

  // The answer, as if all the ranks had been compared at once. Throws NotFound where a rule of the map fits nothing.
  RunDiff result() const;

  // For another process that has the same version of tenscope.
  std::string to_bytes() const;
  static PartialDiff from_bytes(std::string_view bytes);  // throws Version, Corrupt

 private:
  std::optional<DiffRounding> rounding(const std::vector<const Start*>& left) const;
};

}  // namespace tenscope::compare
