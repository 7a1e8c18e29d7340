// Overview. One pass over the events of each process, in order. NaN and infinities are traced to their origins by
// OriginTracer; every other rule keeps the first place at which it holds and a count of the others. Each rule counts
// what it had to look at: where that is nothing, it says nothing.
#include "tenscope/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "compare/check_event.hpp"
#include "compare/check_missing.hpp"
#include "compare/check_origins.hpp"
#include "compare/event_item.hpp"
#include "compare/noise.hpp"
#include "compare/rank_diff.hpp"
#include "compare/stage_transfers.hpp"
#include "compare/thresholds.hpp"
#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"
#include "tenscope/error.hpp"

namespace tenscope {
namespace {

using compare::Io;
using compare::Phase;

constexpr std::array kRules = {
    CheckRule{"nan", "NaN in a tensor or number, told where it arises", 0, "number of NaN elements that is still fine"},
    CheckRule{"inf", "infinity in an output, loss, gradient or parameter, told where it arises", 0,
              "number of infinite elements that is still fine"},
    CheckRule{"overflow", "values near the end of their dtype", 0.5, "part of the dtype's largest number"},
    CheckRule{"ranks-out-of-sync", "parameters that differ between ranks", 0, "relative difference that is still fine"},
    CheckRule{"pipeline-transfer", "a stage of a pipeline received something else than another one sent", 0,
              "relative difference (L2) that is still fine"},
    CheckRule{"exploding-gradient", "a very large gradient", 1e3, "Euclidean norm"},
    CheckRule{"no-gradient", "a parameter without a gradient, or whose gradient is always zero", 1,
              "calls of backward"},
    CheckRule{"unchanged-parameter", "a parameter that the optimizer's steps do not change", 1, "steps"},
    CheckRule{"zero-output", "a module's output is all zero", 1, "calls for which it holds"},
    CheckRule{"constant-output", "a module's output is one number throughout", 1, "calls for which it holds"},
    CheckRule{"dead-units", "channels of an output that are zero in all calls", 0.5, "part of the channels"},
    CheckRule{"vanishing-gradient", "a module all of whose parameters have very small gradients that are not zero",
              1e-8, "root mean square of the largest of them"},
};

double largest_number(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::C128:
      return std::numeric_limits<double>::max();
    case DType::F32:
    case DType::C64:
      return std::numeric_limits<float>::max();
    case DType::BF16:
      return 0x1.FEp127;
    case DType::F16:
      return 65504;
    case DType::F8E4M3:
      return 448;
    case DType::F8E5M2:
    case DType::F8E5M2Fnuz:
      return 57344;
    case DType::F8E4M3Fnuz:
      return 240;
    default:
      return 0;
  }
}

bool is_real(DType dtype) { return largest_number(dtype) > 0; }

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

void refuse_unknown(const std::vector<std::string>& codes) {
  for (const std::string& code : codes)
    if (std::none_of(kRules.begin(), kRules.end(), [&](const CheckRule& rule) { return rule.code == code; }))
      throw Error(ErrorCode::InvalidArgument, fmt::format("there is no rule '{}': see tenscope check --rules", code));
}

// A module's own name among those of several ranks and models.
std::string key_of(const DiffPlace& place) { return fmt::format("{}\n{}\n{}", place.rank, place.root, place.name); }

// Which channels of a module's output were not zero in any call so far.
struct Units {
  std::vector<bool> alive;
  DiffPlace place;
  std::size_t calls = 0;
};

struct Parameter {
  DiffPlace place;
  Fingerprint first;
  bool has_changed = false;
  std::size_t values = 0, gradients = 0;  // how often it, and a gradient that is not zero, was recorded
  double backward_rms = 0;                // the largest gradient as backward has made it,
  double given_rms = 0;                   // and as the optimizer was given it: summed over ranks, say, or clipped
  bool has_given = false;
  double unit = 0;  // of the gradient's dtype: what rounding is

  double gradient_rms() const { return has_given ? given_rms : backward_rms; }
};

// The largest gradient of a parameter of a module in one backward.
struct ModuleGradient {
  DiffPlace place;
  double rms = 0;
};

class Checker {
 public:
  Checker(const Reader& reader, const CheckOptions& options) : reader_(reader) {
    refuse_unknown(options.only);
    refuse_unknown(options.ignore);
    for (const CheckRule& rule : kRules) {
      const std::string code(rule.code);
      const bool is_wanted = options.only.empty() || contains(options.only, code);
      if (is_wanted && !contains(options.ignore, code)) limits_[code] = rule.threshold;
    }
    for (const auto& [code, threshold] : options.thresholds) {
      refuse_unknown({code});
      if (const auto found = limits_.find(code); found != limits_.end()) found->second = threshold;
    }
  }

  CheckReport check() {
    compare::OriginTracer tracer(reader_, limit("nan").value_or(0), limit("inf").value_or(0));
    compare::StageTransfers transfers(reader_);
    std::set<std::int64_t> steps;
    for (EventId id = 0; id < reader_.event_count(); ++id) {
      const Event event = reader_.event(id);
      if (compare::is_beside(event)) continue;  // inside an operation infinities are no illness: a mask, a maximum
      tracer.look_at(id, event);
      transfers.look_at(id, event);
      if (event.kind != EventKind::Value && event.kind != EventKind::Change) continue;
      if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) {
        look_at(id, event, *tensor);
      } else if (std::holds_alternative<double>(event.value) || std::holds_alternative<std::int64_t>(event.value)) {
        ++report_.numbers;
      } else {
        continue;
      }
      steps.insert(event.step);
    }
    report_.steps = steps.size();
    look_at_module_gradients();
    look_at_units();
    look_at_parameters();
    look_at_ranks();
    look_at_transfers(transfers);
    report_.findings = tracer.findings(limit("nan").has_value(), limit("inf").has_value());
    for (const CheckRule& rule : kRules) {
      const std::string code(rule.code);
      if (const auto found = findings_.find(code); found != findings_.end())
        report_.findings.push_back(std::move(found->second));
      if (limits_.contains(code)) report_.rules.push_back({code, coverage_of(code)});
    }
    compare::find_missing(reader_, report_);
    if (unreadable_ > 0)
      report_.missing.push_back(
          fmt::format("the bytes of {} tensors cannot be read; the first: {}", unreadable_, first_unreadable_));
    return std::move(report_);
  }

 private:
  std::optional<double> limit(const std::string& code) const {
    const auto found = limits_.find(code);
    return found == limits_.end() ? std::nullopt : std::optional(found->second);
  }

  std::size_t coverage_of(const std::string& code) const {
    if (code == "nan" || code == "inf") return report_.tensors + report_.numbers;
    const auto found = looked_at_.find(code);
    return found == looked_at_.end() ? 0 : found->second;
  }

  void report(const std::string& code, const DiffPlace& place, double value, std::string message) {
    constexpr std::size_t kMostOthers = 5;
    const auto [found, is_new] = findings_.try_emplace(code);
    CheckFinding& finding = found->second;
    if (is_new) {
      finding = {.code = code, .place = place, .message = std::move(message), .value = value};
      return;
    }
    ++finding.count;
    if (finding.others.size() < kMostOthers && place.name != finding.place.name &&
        !contains(finding.others, place.name))
      finding.others.push_back(place.name);
  }

  void look_at(EventId id, const Event& event, const TensorRecord& tensor) {
    ++report_.tensors;
    const Stats& stats = tensor.stats;
    const Io io = event.io;
    if (is_real(tensor.dtype)) look_at_range(id, event, tensor);
    if (io == Io::Output && stats.count > 1 && is_real(tensor.dtype)) look_at_output(id, event, tensor);
    if (compare::is_gradient(io)) {
      ++looked_at_["exploding-gradient"];
      if (const auto most = limit("exploding-gradient"); most && stats.l2 > *most)
        report("exploding-gradient", place_of(id, event), stats.l2,
               fmt::format("{} has a norm of {:.3g}", event.name, stats.l2));
    }
    if (io == Io::Grad && event.phase != Phase::Optimizer) follow_module_gradient(id, event, stats);
    if (io == Io::Grad || io == Io::Param) follow_parameter(id, event, tensor, io);
  }

  DiffPlace place_of(EventId id, const Event& event) const { return compare::place_of(reader_, id, event); }

  // A tensor that reaches down to the very lowest number of its dtype has been filled with it: a mask.
  void look_at_range(EventId id, const Event& event, const TensorRecord& tensor) {
    ++looked_at_["overflow"];
    const Stats& stats = tensor.stats;
    const double largest = largest_number(tensor.dtype);
    const auto part = limit("overflow");
    if (!part || !(stats.abs_max > *part * largest)) return;
    if (stats.min == -largest && stats.max <= *part * largest) return;
    report("overflow", place_of(id, event), stats.abs_max,
           fmt::format("{} reaches {:.4g}; {} ends at {:.4g}", event.name, stats.abs_max, to_string(tensor.dtype),
                       largest));
  }

  void look_at_output(EventId id, const Event& event, const TensorRecord& tensor) {
    const Stats& stats = tensor.stats;
    const auto holds = [&](const std::string& code) {
      return limit(code) && static_cast<double>(++calls_[code + '\n' + key_of(place_of(id, event))]) >= *limit(code);
    };
    ++looked_at_["zero-output"];
    ++looked_at_["constant-output"];
    if (stats.zero == stats.count) {
      if (holds("zero-output"))
        report("zero-output", place_of(id, event), 0,
               fmt::format("{} is all zero ({} elements)", event.name, stats.count));
    } else if (stats.nan + stats.pos_inf + stats.neg_inf == 0 && stats.min == stats.max) {
      if (holds("constant-output"))
        report("constant-output", place_of(id, event), stats.min,
               fmt::format("{} is {:.6g} in all its {} elements", event.name, stats.min, stats.count));
    }
    if (limit("dead-units") && tensor.has_bytes() && tensor.shape.size() >= 2) follow_units(id, event, tensor);
  }

  // Channels are on the second axis of images and volumes, else on the last one.
  void follow_units(EventId id, const Event& event, const TensorRecord& tensor) {
    const std::size_t axis = tensor.shape.size() >= 4 ? 1 : tensor.shape.size() - 1;
    const auto width = static_cast<std::size_t>(tensor.shape[axis]);
    std::size_t inner = 1;
    for (std::size_t k = axis + 1; k < tensor.shape.size(); ++k) inner *= static_cast<std::size_t>(tensor.shape[k]);
    if (width < 2 || static_cast<std::size_t>(tensor.stats.count) < 4 * width) return;
    ++looked_at_["dead-units"];
    const DiffPlace place = place_of(id, event);
    const auto [found, is_new] = units_.try_emplace(key_of(place));
    Units& units = found->second;
    if (is_new) {
      units.alive.assign(width, false);
      units.place = place;
    }
    if (units.alive.size() != width) return;
    ++units.calls;
    if (tensor.stats.zero == 0) {
      units.alive.assign(width, true);
      return;
    }
    try {
      mark_alive(id, tensor, inner, units.alive);
    } catch (const Error& error) {
      if (unreadable_++ == 0) first_unreadable_ = error.what();
      units.alive.assign(width, true);
    }
  }

  void mark_alive(EventId id, const TensorRecord& tensor, std::size_t inner, std::vector<bool>& alive) const {
    const TensorData data = reader_.tensor(id);
    const kernels::ElementReader elements(data.view);
    std::vector<std::byte> scratch(elements.item_size() * inner);
    kernels::visit_dtype(tensor.dtype, [&](auto tag) {
      using T = decltype(tag);
      if constexpr (!kernels::kIsComplex<T>) {
        for (std::int64_t row = 0; row * static_cast<std::int64_t>(inner) < elements.count(); ++row) {
          const std::size_t unit = static_cast<std::size_t>(row) % alive.size();
          if (alive[unit]) continue;
          const std::byte* bytes =
              elements.read(row * static_cast<std::int64_t>(inner), static_cast<std::int64_t>(inner), scratch.data());
          for (std::size_t i = 0; i < inner && !alive[unit]; ++i)
            alive[unit] = kernels::to_double(kernels::load<T>(bytes + i * sizeof(T))) != 0;
        }
      }
    });
  }

  void look_at_units() {
    for (const auto& [name, units] : units_) {
      const auto dead = static_cast<double>(std::count(units.alive.begin(), units.alive.end(), false));
      const double part = dead / static_cast<double>(units.alive.size());
      if (units.calls > 0 && part > *limit("dead-units") && part < 1)
        report("dead-units", units.place, part,
               fmt::format("{:.0f} of {} channels of {} are zero in all of {} calls", dead, units.alive.size(),
                           units.place.name, units.calls));
    }
  }

  // A gradient is judged by the largest one of its module: a parameter whose gradient is zero by mathematics (the bias
  // of attention's keys, a bias in front of a normalisation) has one of rounding noise beside others of full size.
  void follow_module_gradient(EventId id, const Event& event, const Stats& stats) {
    const DiffPlace place = place_of(id, event);
    const std::tuple backward(place.rank, place.root, place.step, place.call);
    if (backward != backward_) look_at_module_gradients();
    backward_ = backward;
    ++looked_at_["vanishing-gradient"];
    const double rms = stats.l2 / std::sqrt(static_cast<double>(stats.count));
    if (!(rms > 0)) return;
    ModuleGradient& module = module_gradients_[place.module];
    if (rms > module.rms) module = {place, rms};
  }

  void look_at_module_gradients() {
    const auto least = limit("vanishing-gradient");
    const ModuleGradient* largest = nullptr;
    for (const auto& [path, module] : module_gradients_)
      if (largest == nullptr || module.rms > largest->rms) largest = &module;
    for (const auto& [path, module] : module_gradients_)
      if (least && module.rms < *least)
        report(
            "vanishing-gradient", module.place, module.rms,
            fmt::format("{} has a root mean square of {:.3g}, and no gradient of {} a larger one; the largest in the "
                        "model is {:.3g}, of {}",
                        module.place.name, module.rms, path.empty() ? "the model" : path, largest->rms,
                        largest->place.name));
    module_gradients_.clear();
  }

  void follow_parameter(EventId id, const Event& event, const TensorRecord& tensor, Io io) {
    if (tensor.stats.count == 0) return;  // the part of a rank that has none of it
    DiffPlace place = place_of(id, event);
    if (io == Io::Grad) place.name = parameter_of_gradient(event.name);
    const auto [found, is_new] = parameters_.try_emplace({place.rank, place.root, place.name});
    Parameter& parameter = found->second;
    if (is_new) parameter.place = place;
    if (io == Io::Grad) {
      backward_calls_ = std::max(backward_calls_, static_cast<std::size_t>(event.call) + 1);
      if (tensor.stats.zero < tensor.stats.count) ++parameter.gradients;
      const double rms = tensor.stats.l2 / std::sqrt(static_cast<double>(tensor.stats.count));
      parameter.unit = compare::unit_roundoff(tensor.dtype);
      const bool is_given = event.phase == Phase::Optimizer;
      parameter.has_given |= is_given;
      double& largest = is_given ? parameter.given_rms : parameter.backward_rms;
      if (rms > largest) largest = rms;
      return;
    }
    if (parameter.values++ == 0)
      parameter.first = tensor.fingerprint;
    else
      parameter.has_changed |= !(parameter.first == tensor.fingerprint);
  }

  void look_at_parameters() {
    report_.parameters = parameters_.size();
    std::map<std::tuple<int, std::string, std::string>, double> largest;  // gradient of each module
    for (const auto& [key, parameter] : parameters_) {
      double& rms = largest[{parameter.place.rank, parameter.place.root, parameter.place.module}];
      rms = std::max(rms, parameter.gradient_rms());
    }
    // A gradient that is zero by mathematics is nothing but rounding beside others of its module.
    const auto is_noise = [&](const Parameter& parameter) {
      const DiffPlace& place = parameter.place;
      const double part =
          std::min(compare::thresholds::kCheckNoiseUnits * parameter.unit, compare::thresholds::kCheckMostNoise);
      return parameter.gradients > 0 &&
             parameter.gradient_rms() < part * largest[{place.rank, place.root, place.module}];
    };
    for (const auto& [key, parameter] : parameters_) {
      const std::string& name = parameter.place.name;
      if (parameter.values > 1) ++looked_at_["unchanged-parameter"];
      if (const auto steps = limit("unchanged-parameter"); steps && static_cast<double>(parameter.values) > *steps &&
                                                           parameter.values > 1 && !parameter.has_changed &&
                                                           !is_noise(parameter))
        report("unchanged-parameter", parameter.place, static_cast<double>(parameter.values - 1),
               fmt::format("{} is the same after {} steps", name, parameter.values - 1));
      if (backward_calls_ == 0) continue;
      ++looked_at_["no-gradient"];
      if (const auto calls = limit("no-gradient");
          calls && static_cast<double>(backward_calls_) >= *calls && parameter.gradients == 0)
        report("no-gradient", parameter.place, static_cast<double>(backward_calls_),
               fmt::format("{} has no gradient after {} calls of backward", name, backward_calls_));
    }
  }

  void look_at_ranks() {
    std::set<int> ranks;
    for (const WriterInfo& writer : reader_.writers()) ranks.insert(writer.rank);
    const auto most = limit("ranks-out-of-sync");
    if (!most || ranks.size() < 2) return;
    RankCoverage coverage;
    const std::vector<RankDifference> differences = compare::diff_ranks(reader_, coverage);
    looked_at_["ranks-out-of-sync"] = coverage.compared;
    for (const RankDifference& difference : differences)
      if (difference.place.io == "param" && difference.rel_max > *most)
        report("ranks-out-of-sync", difference.place, difference.rel_max,
               fmt::format("{} differs on rank {} from step {} on", difference.place.name, difference.ranks.front(),
                           difference.place.step));
  }

  void look_at_transfers(compare::StageTransfers& transfers) {
    const auto most = limit("pipeline-transfer");
    if (!most) return;
    for (const compare::WrongTransfer& wrong : transfers.find(*most))
      report("pipeline-transfer", wrong.place, wrong.rel_l2, wrong.message);
    looked_at_["pipeline-transfer"] = transfers.compared();
  }

  const Reader& reader_;
  CheckReport report_;
  std::map<std::string, double> limits_;
  std::map<std::string, CheckFinding> findings_;
  std::map<std::string, std::size_t> looked_at_, calls_;
  std::map<std::string, Units> units_;
  std::map<std::tuple<int, std::string, std::string>, Parameter> parameters_;
  std::tuple<int, std::string, std::int64_t, std::int64_t> backward_;
  std::map<std::string, ModuleGradient> module_gradients_;  // of that backward, by path
  std::size_t backward_calls_ = 0;
  std::size_t unreadable_ = 0;
  std::string first_unreadable_;
};

}  // namespace

bool CheckReport::has_looked() const noexcept {
  return std::any_of(rules.begin(), rules.end(), [](const CheckCoverage& rule) { return rule.looked_at > 0; });
}

bool CheckReport::is_healthy() const noexcept {
  return has_looked() && findings.empty() && missing.empty() && failures.empty();
}

Span<const CheckRule> check_rules() { return kRules; }

CheckReport check_run(const std::filesystem::path& run, const CheckOptions& options) {
  const Reader reader(run);
  return Checker(reader, options).check();
}

}  // namespace tenscope
