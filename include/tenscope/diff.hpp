#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace tenscope {

// The first run is the reference, a; the second, b, is what became of it.

// What was said of one event and its partner.
enum class PairVerdict : std::uint8_t {
  Equal,       // bit for bit
  SameValues,  // but for the dtype or the sign of zeros
  Noise,
  Unknown,  // what was kept does not suffice to say, or it was not looked at
  Follows,  // differs because of something before it
  Starts,   // starts a difference
  Alone,    // has no partner
};

// Two events that belong together, or one that has no partner.
struct DiffPair {
  std::optional<std::uint32_t> a, b;  // EventId in each run
  PairVerdict verdict = PairVerdict::Unknown;
  double error = 0;  // |b - a| / |a|, Euclidean, measured or estimated from sketches; NaN where that is not known
};

struct RunDiffOptions {
  // "blocks.*=layers.*": modules of the first run whose path matches the left side are those of the second run on the
  // right side; each * on the right stands for what the * at its place on the left matched. Overrules what is inferred.
  std::vector<std::string> map;
  // Largest harmless difference, as a part of the tensor's largest value; overrules the one of each dtype.
  std::optional<double> tolerance;
  // Names of integers that both runs recorded, by which rows (tokens) belong together: "request", "position";
  // "request=req_id" where the second run has another name. Empty: rows stand in the same places.
  std::vector<std::string> rows;
  std::vector<int> ranks;     // only these; empty: all
  bool allow_prefix = false;  // a run that ends earlier than the other is no difference
  // How much noise each place was measured to have (docs/noise.md): a profile, or the folder of a run that has one.
  // Empty: the profiles of both runs, where they have one. Nothing: no profile.
  std::optional<std::filesystem::path> noise = std::filesystem::path();
  bool with_budget = false;                      // what each module adds to the error: RunDiff::budget
  std::size_t max_origins = 100;                 // origins beyond these are counted, not listed
  std::function<void(double done)> on_progress;  // 0 to 1, from the calling thread
  // Called for every value of both runs once its rank is judged, where ranks were compared one by one. Costs an
  // estimate for each pair that differs.
  std::function<void(const DiffPair&)> on_pair;
};

// What a comparison says, of one pair of tensors and of two runs.
enum class DiffVerdict : std::uint8_t {
  Equal,    // the same numbers, bit for bit
  Noise,    // no more than rounding noise
  Differs,  // beyond it
  Unknown,  // what was kept does not suffice to say
  Nothing,  // there was nothing to compare
};
std::string_view to_string(DiffVerdict verdict) noexcept;  // "equal", "noise", "differs", "unknown", "nothing"

// A tensor or number in a run.
struct DiffPlace {
  std::string root;    // label of the outermost module, "GPT#0"
  std::string module;  // path below the root; empty: the root itself
  std::string name;    // "blocks.0.attn.output", of a parameter, buffer or gradient the parameter's or buffer's name
  std::string io;      // input, output, loss, grad, param, buffer, value
  std::string phase;   // init, forward, backward, optimizer
  std::string cls;     // class of the module
  std::string site;    // source line, where known
  std::int64_t step = 0;
  std::int64_t call = 0;
  int rank = 0;
  bool is_function = false;  // the root has neither submodules nor parameters: a loss, an activation
};

// An event as one of the runs has it.
struct DiffEvent {
  std::string name;
  std::int64_t step = 0;
  std::int64_t call = 0;
  // Compared by rows: the rank that recorded the row that differs most, where the run has several; and the element, or
  // the row, in its tensor, as NumPy would have it between brackets.
  std::optional<int> rank = std::nullopt;
  std::string slice = {};
};

// What keeps two values from being compared element by element.
enum class DiffObstacle : std::uint8_t {
  None,
  OnlyStatistics,   // bytes were kept on one side at most: the measures are lower bounds
  OnlySketches,     // ... and sketches on both: the measures are estimates
  Shapes,           // they differ
  MissingInFirst,   // there is no such value in the first run
  MissingInSecond,  // ... in the second run
  Kinds,            // a tensor in one run, a number or text in the other
  Texts,            // neither is a number
};

// A part of a tensor that is spread over ranks, and is not what it should be.
struct DiffPart {
  int run = 1;             // whose part it is, 0 or 1
  int rank = 0;            // who recorded it
  std::int64_t pass = -1;  // of several passes through the model in one step; -1: there is one
  double rel_l2 = 0;       // |part - what it should be| as a part of the latter, Euclidean
  int like = -1;           // it is what the part of this rank should be; -1: it is no other's
  std::int64_t like_pass = -1;
};

// How a value b differs from a value a. What does not apply (other shapes, only statistics kept) is NaN or empty.
struct DiffMetrics {
  std::string dtype_a, dtype_b;
  std::vector<std::int64_t> shape_a, shape_b;
  std::int64_t count = 0;      // elements
  std::int64_t differing = 0;  // elements that differ (NaN equals NaN)
  double max_abs = 0;          // largest |b - a|
  double rel_max = 0;          // max_abs as a part of the largest |a|
  double rel_l2 = 0;           // |b - a| as a part of |a|, Euclidean
  double correlation = 0;      // cosine between b - a and a: near 0 for rounding noise
  double rel_l2_error = 0;     // its standard error, where rel_l2 was estimated from sketches; else 0
  std::int64_t nan_a = 0, nan_b = 0, inf_a = 0, inf_b = 0;
  std::vector<std::int64_t> worst_index;
  std::string row;   // of the worst, by the keys of rows: "request 2, position 5"; empty: not compared by rows
  std::string rows;  // in which rows anything differs: "3 of 14, all of request 2"; empty: in all, or not by rows
  std::string worst_a, worst_b;                     // the values there, as text that reads back as the same number
  std::vector<std::array<std::int64_t, 2>> ranges;  // per axis: the half-open range of slices in which anything differs
  std::string layout;                               // how b lies in a, where they were paired by content
  std::string relation;                             // "b = 4 a", "b is a, flipped along axis 1"; empty: none was found
  std::string relation_numpy;                       // the same as a statement of NumPy, where that says it all
  DiffObstacle obstacle = DiffObstacle::None;
  // Runs that are laid out differently: how the tensor was put together of its parts in each, "2 joined along axis 0"
  // (empty: one process has it all), and which parts are off.
  std::string assembled_a, assembled_b;
  std::vector<DiffPart> parts;
  bool is_sum_missing = false;  // the parts' sum would agree, and nothing that follows has made it
};

// Why a place is blamed.
enum class DiffCause : std::uint8_t {
  ModelInput,            // an input of an outermost module
  SubmoduleInput,        // an input of `module`, made by the blamed module's own code
  ExtraInput,            // `module` is given `tensor` in one run only
  ParameterOfItsOwn,     // `module` has the parameter `tensor` in one run only, and its output differs
  Output,                // the output of `module`
  ChangedInput,          // what `module` makes of its input in place
  Value,                 // `tensor`, recorded by hand
  Buffer,                // the buffer `tensor`, after the call of `module`
  Initial,               // the parameter or buffer `tensor`, before the first forward
  ExtraDraw,             // `module` has the parameter `tensor` in one run only; what is drawn after it is another draw
  ChangedBetweenCalls,   // the parameter or buffer `tensor`, before a later call, and not by the optimizer
  Loss,                  //
  GradientReaching,      // the gradient that arrives at the output of `module`
  GradientLeaving,       // the gradient that `module` passes on
  GradientCutOff,        // the gradient that `module` passes on, in one run only
  GradientOfParameter,   // of `tensor`, though what reaches its module agrees
  GradientUnexplained,   // of `tensor`, where the way of the gradients was not recorded
  GradientBetween,       // those of the modules before the blamed one differ, those after it agree
  GradientBeforeUpdate,  // of `tensor`, between backward and the optimizer
  Update,                // the parameter `tensor`, after the optimizer's step
  UpdateFromRounding,    // the same: by no more than rounding at first, beyond that in step `step`
  End,                   // one run goes on, the other does not
};
std::string_view to_string(DiffCause cause) noexcept;  // "model_input", "submodule_input", ...

// What keeps an answer from being certain.
enum class DiffDoubt : std::uint8_t {
  None,
  NearNoise,      // the difference is not much larger than the rounding noise of what it depends on
  OneSideOnly,    // the tensor is in one run only
  InputsNotSeen,  // what the blamed module is given was not recorded
  OtherName,      // the blamed module has another name in the second run; only its structure says that it is the same
  WayNotSeen,     // the way of the gradients was not recorded
  ByOrder,        // only their order says that the two tensors are the same thing
  NotKept,        // something before it could not be judged: the difference may have begun there
};
enum class DiffConfidence : std::uint8_t { High, Medium, Low };
DiffConfidence confidence_of(DiffDoubt doubt) noexcept;
std::string_view to_string(DiffConfidence confidence) noexcept;  // "high", "medium", "low"

struct DiffReason {
  DiffCause cause = DiffCause::Output;
  std::string module;         // see DiffCause
  std::string tensor;         // see DiffCause
  std::string changed_input;  // an input of the blamed module that it changes in place in one run only
  std::int64_t step = 0;      // see DiffCause
  int ended = -1;             // End: the run that ends, 0 or 1
  std::string exception;      // End: what it raised
  DiffDoubt doubt = DiffDoubt::None;
  bool is_of_all = false;   // of a gradient or an update: those of all parameters begin to differ together
  bool is_partial = false;  // one run did not record all that the other did
  // What of the blamed module was compared, and agrees.
  bool has_inputs = true, has_parameters = true, has_submodules = true;
  double noise_before = 0;  // the largest relative difference among what it depends on; all of it rounding noise
  std::string other_dtype;  // the first tensor before it that has equal values in another dtype
};

// The initial values of a parameter or buffer, as random numbers.
struct DiffDistribution {
  bool is_independent = false;  // the values of b have nothing to do with those of a
  bool is_same = false;         // by mean, deviation, zeros and extremes it may be the same distribution
  double mean_a = 0, mean_b = 0, std_a = 0, std_b = 0;
  std::int64_t zeros_a = 0, zeros_b = 0;
  bool is_another_draw() const noexcept { return is_independent && is_same; }
};

// What an optimizer's step did to a parameter.
struct DiffUpdate {
  std::string optimizer_a, optimizer_b;   // classes, where known
  std::int64_t moved_a = 0, moved_b = 0;  // elements that it changed
  std::int64_t moved_both = 0;            // in both runs
  std::int64_t flipped = 0;               // of these, in opposite directions
  double ratio = 0;                       // of these, the median of b's update as a part of a's
};

// A plain attribute of a module that is another in the second run: values as JSON, empty where it has none.
struct DiffAttribute {
  std::string root, module;  // in the first run's names
  std::string name;          // "eps", "config.hidden_act"; "training"; "dtype of weight"
  std::string a, b;
  std::int64_t step = -1, call = -1;  // where they begin to differ; -1: from the module's first call on
};

// What two runs keep of the source of one module's class.
enum class DiffSource : std::uint8_t {
  Unknown,  // one of them does not have it, or it could not be found in what it has
  Same,
  Differs,
  Another,  // the modules are of different classes that have little in common
};
std::string_view to_string(DiffSource source) noexcept;  // "unknown", "same", "differs", "another"

// The code of a blamed module in both runs: as the runs keep it, whatever has become of the files since.
struct DiffCode {
  std::string class_a, class_b;                     // "package.module:Outer.Name"; empty: not recorded
  std::string site_a, site_b;                       // where its forward begins, "model.py:21"; empty: not known
  std::vector<std::string> wrappers_a, wrappers_b;  // where functions around it begin, the outermost first
  bool is_forward_elsewhere = false;                // of its class in one run, from another place in the other
  DiffSource source = DiffSource::Unknown;
  std::string why_unknown;
  std::vector<std::string> lines;      // the changes as `diff -u` has them, with the numbers of the files' lines
  std::size_t left_out = 0;            // lines of it that are too many to be shown
  std::size_t removed = 0, added = 0;  // lines in all
  std::vector<std::string> elsewhere;  // other classes and functions of the same file that differ
  std::vector<DiffAttribute> attributes;
};

// A place that starts a difference: what it depends on agrees.
struct DiffOrigin {
  DiffPlace place;      // place.module is the innermost module to blame
  std::string seen_in;  // module in which the tensor was seen: a submodule's input blames the module around it
  std::string seen_as;  // the name under which it was recorded
  std::optional<DiffEvent> event_a, event_b;  // the tensor in each run
  DiffMetrics metrics;
  std::optional<DiffDistribution> distribution;  // Initial
  std::optional<DiffUpdate> update;              // Update, UpdateFromRounding
  std::optional<DiffPlace> last_agreeing;
  DiffReason reason;
  std::size_t tensors = 1;       // tensors of the same kind, step and phase that begin to differ together with it
  std::optional<DiffCode> code;  // where it is a module's code that is blamed
};

struct DiffUnmatched {
  int side = 0;  // 0: only in the first run, 1: only in the second
  std::string root;
  std::string module;
  std::string cls;
  std::string name;  // of a single tensor in a module that both runs have; empty: the whole module
  std::size_t events = 0;
};

struct DiffRenamed {
  std::string root, a, b;  // module paths; what lies below them is renamed alike
};

// How a module's tensors compare, over all steps and ranks.
struct DiffModule {
  std::string root, module;  // in the first run's names
  bool is_bit_equal = true;
  bool is_within_tolerance = true;
  bool is_unknown = false;  // some of its tensors could not be judged
  std::int64_t step = 0;    // where the first of them differs beyond tolerance
  std::string phase;
};

// Two tensors that were paired by content, with no help from names.
struct DiffContentPair {
  std::string a, b;                 // names
  std::int64_t step = 0, call = 0;  // of a
  std::string how;       // "content" (their values agree), "operands", "part", "rule" (names that were paired), "order"
  std::string layout;    // how b lies in a
  bool is_part = false;  // one is a part of the other
  double error = 0;      // |b - a| / |a|, Euclidean
};

// How tensors of two runs that are laid out differently were put together of their parts.
struct DiffLayout {
  std::string tensor;  // "blocks.*.attn.output"
  std::string a, b;    // in words, "2 joined along axis 0"; empty: as one process has it
  std::size_t count = 0;
};

struct DiffSetting {  // a seed, a determinism setting, a version that both runs noted
  std::string name, a, b;
};

// Something to know about the comparison.
struct DiffNote {
  enum class Kind : std::uint8_t {
    OtherClass,    // the module `subject` is of class `a` in the first run, of class `b` in the second
    OtherClasses,  // `count` more modules are
    OtherDtype,    // the values of `subject` are equal, but of dtype `a` in the first run, `b` in the second; `count`
                   // such
    OtherDraws,    // `count` initial values look like another draw of the same distribution
    IdleInput,     // the input `subject` differs, and nothing comes of it; `count` more such
    MissingRank,   // rank `count` is only in run `side`
    OtherRanks,    // a difference starts in the same step and phase on `count` other ranks, `a`: "rank 3", "ranks 0-2"
    ExtraCalls,    // calls of `subject` in run `side` that have no partner: `a`; `count` of them
    NotSeen,       // run `side` says of `subject` that it was not seen: `a`
    Lost,          // run `side` has lost events or bytes: `a`, a sentence
    NotClosed,     // the writer `subject` of run `side` did not close its journal
    Failed,        // run `side` ended by the exception `a`
    Damage,        // run `side` is damaged: `a`, in the file `subject`
    Exchanged,     // parameter `subject` of the second run has the values of `a`, whose place is `b` by `count` others
    OddLayout,     // parameters `subject` (of both runs) lie as `a` says, while `count` others lie as `b` says
    OtherForm,     // parameters `a` and `b` have other values, and what is made with them agrees; `count` such
    InPart,        // of `subject` of run `side` a part alone could be compared, `a`; `count` such tensors
    ByContent,     // `count` tensors were paired by content, with no help from names
    EndsUnpaired,  // paired by content: `a`, the last tensor of the first run, and `b`, that of the second, have no
                   // partner; one of them may be empty
    NothingInCommon,  // no tensor of one could be paired with one of the other
    NoOutputs,        // neither outputs nor values recorded by hand could be compared: parameters and inputs only
    OtherLayout,      // the runs are laid out differently: `a` against `b`; tensors were put together of their parts
    NotAssembled,     // of `count` tensors, `subject` the first, the parts could not be put together
    OnlyByRanks,      // whole tensors were not put together: that is tried for runs of up to `count` ranks alike
    HiddenByNoise,    // at `count` places, `subject` the first, noise is nearly as large as the values
    OnlyDescribed,    // `count` values, `subject` the first, are in both runs as a text that describes them,
                      // "<Tokenizer>"
    RoughAlignment,   // sequences too long to be aligned exactly were aligned in slices
  };
  Kind kind{};
  int side = 0;
  std::string subject;
  std::string a, b;
  std::size_t count = 0;
};

// Where the difference begins with a coarser dtype: does anything differ by more than its rounding?
struct DiffRounding {
  std::string dtype;
  std::optional<DiffOrigin> beyond;  // the first that does
};

// Two engines: how far apart they are where they agree.
struct DiffEngineNoise {
  double weights = 0;  // median |b - a| / |a| of paired parameters, Euclidean: the coarser engine's precision
  double largest = 0;  // the same of the tensor that is furthest off, and harmless
  std::string tensor;
};

// Tensors that have one number in each row, such as the log-probability of each token.
struct DiffRowTable {
  struct Row {
    std::vector<std::uint64_t> key;
    double a = 0, b = 0;
  };
  std::string a, b;  // names
  std::vector<Row> rows;
};

// What was compared by rows.
struct DiffRows {
  std::vector<std::string> keys;                  // names of the keys, in the first run
  std::size_t first = 0, second = 0, common = 0;  // rows in each run without padding, and pairs of them
  std::size_t padding_first = 0, padding_second = 0;
  std::size_t duplicates = 0;                         // rows left out, because the other run has their key fewer times
  bool takes_first = false;                           // of such rows the first were compared; false: the last
  std::size_t unplaced = 0;                           // rows that token ids do not place in a sequence
  std::vector<std::string> left_out_a, left_out_b;    // tensors without such rows
  std::vector<std::string> ambiguous_a, ambiguous_b;  // tensors of which several axes may be those of the rows
  std::vector<std::string> partial;                   // tensors that were compared in part only
  std::vector<std::string> as_they_are;               // tensors that have equal bytes in both runs, but not by rows
  bool are_keys_doubtful = false;                     // there are such, and no tensor agrees by rows
  std::vector<DiffRowTable> tables;

  // All rows of both runs were compared.
  bool is_complete() const noexcept { return common == first && common == second && partial.empty(); }
};

// What each module adds to the error of the second run, in the forward (docs/budget.md). Errors are |b - a| / |a|,
// Euclidean; of several tensors by their sizes, of several calls the root of the mean square.
struct DiffBudget {
  struct Module {
    std::string root, module, cls;  // in the first run's names
    bool is_own_code = false;       // of a module with others in it: what its code does between their calls
    std::size_t calls = 0;
    double arriving = 0;      // of what it computes from
    double leaving = 0;       // of what it makes of it
    double adds = 0;          // what it would add to a result of which the sources agree
    double amplifies = 0;     // how many times the error that arrives it hands on; NaN: none arrives
    bool is_assumed = false;  // how it hands on errors is not known: taken to be 1, or less where less leaves
    double share = 0;         // of the squared error that leaves the outermost module: what began here; NaN: not known
  };
  struct Root {
    std::string root;
    std::size_t calls = 0;
    std::size_t left_out = 0;  // calls after a backward of an earlier step: the parameters are no longer the same
    double leaving = 0;
    double share_of_inputs = 0;   // of the squared error that leaves: what arrived with its inputs; NaN: none leaves
    double share_not_traced = 0;  // what could not be followed
  };
  std::vector<Module> modules;       // sorted by what they add
  std::vector<Root> roots;           // in the order of their calls
  std::vector<std::string> unknown;  // modules of which nothing could be judged
};

struct RunDiff {
  std::string a, b;  // the runs' folders
  DiffVerdict verdict = DiffVerdict::Nothing;
  std::optional<DiffOrigin> first_divergence;
  std::optional<DiffOrigin> first_bit_difference;  // the first tensor that differs at all
  std::optional<DiffPlace> first_unknown;          // the first tensor that could not be judged
  std::vector<DiffOrigin> origins;                 // the first divergence first
  std::size_t origin_count = 0;
  std::size_t other_draws = 0;  // of these, initial values that look like another draw of the same distribution
  std::optional<DiffRounding> rounding;
  std::optional<DiffRows> rows;
  std::optional<DiffEngineNoise> engine_noise;
  std::optional<DiffBudget> budget;         // where it was asked for
  std::vector<std::string> noise_profiles;  // files with the measured noise of places
  std::size_t judged_by_profile = 0;        // values that differ, and were judged by it
  std::vector<DiffUnmatched> unmatched;
  std::vector<DiffRenamed> renamed;
  std::vector<DiffContentPair> content_pairs;  // in the order of the first run
  std::vector<DiffLayout> layouts;             // where the runs are laid out differently
  std::vector<DiffModule> modules;             // those of which anything could be compared
  std::vector<DiffSetting> settings;
  std::vector<DiffAttribute> attributes;  // of modules that both runs have, the first of them
  std::size_t attribute_count = 0;
  std::vector<DiffNote> notes;

  std::size_t total_a = 0, total_b = 0;  // tensors, numbers and texts in each run
  std::size_t compared = 0;              // pairs of them; the sum of the following and of the origins' tensors
  std::size_t bit_equal = 0;
  std::size_t same_values = 0;   // equal, but for the dtype or the sign of zeros
  std::size_t noise = 0;         // differ by rounding noise only
  std::size_t unknown = 0;       // differ by nobody knows how much
  std::size_t consequences = 0;  // differ beyond tolerance because of an origin
  std::size_t idle = 0;          // differ beyond tolerance, and nothing comes of it

  // Every tensor of the modules that both have is on both sides, equal bit for bit.
  bool equal() const noexcept { return verdict == DiffVerdict::Equal; }
  // All that was compared agrees but for rounding noise, and enough was compared to say so.
  bool within_tolerance() const noexcept { return verdict == DiffVerdict::Equal || verdict == DiffVerdict::Noise; }
};

// Compares two recordings and names the first place where they part. See docs/diff.md for how it judges.
// Throws Error where a run cannot be read.
RunDiff diff_runs(const std::filesystem::path& a, const std::filesystem::path& b, const RunDiffOptions& options = {});

// Parameters, buffers and gradients of one run that should be equal across its ranks and are not.
struct RankDifference {
  DiffPlace place;         // the first event at which the ranks part
  std::vector<int> ranks;  // those that differ from the lowest rank that has it
  double rel_max = 0;      // of the first of them
};
// How much of it there was to compare.
struct RankCoverage {
  std::size_t compared = 0;               // tensors that several ranks have alike
  std::vector<std::string> not_compared;  // names of shards and of stages of a pipeline that one rank alone has
};
std::vector<RankDifference> diff_ranks(const std::filesystem::path& run, RankCoverage* coverage = nullptr);

}  // namespace tenscope
#pragma GCC visibility pop
