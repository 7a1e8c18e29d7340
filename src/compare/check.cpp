// Overview. One pass over the events of each process, in order. A rule keeps the first place at which it holds and a
// count of the others. A NaN is traced to where it arises: the first tensor that has one. As an output it blames its
// module, as an input the module around it (or the data), since everything before it had none.
#include "tenscope/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "compare/timeline.hpp"
#include "kernels/element.hpp"
#include "kernels/element_reader.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope {
namespace {

using compare::Io;
using compare::Phase;

constexpr std::array kRules = {
    CheckRule{"nan", "NaN in a tensor", 0, "number of NaN elements that is still fine"},
    CheckRule{"inf", "infinity in an output, loss, gradient or parameter", 0,
              "number of infinite elements that is still fine"},
    CheckRule{"overflow", "values near the end of their dtype", 0.5, "part of the dtype's largest number"},
    CheckRule{"zero-output", "a module's output is all zero", 1, "calls for which it holds"},
    CheckRule{"constant-output", "a module's output is one number throughout", 1, "calls for which it holds"},
    CheckRule{"dead-units", "channels of an output that are zero in all calls", 0.5, "part of the channels"},
    CheckRule{"exploding-gradient", "a very large gradient", 1e3, "Euclidean norm"},
    CheckRule{"vanishing-gradient", "a very small gradient that is not zero", 1e-8, "root mean square"},
    CheckRule{"unchanged-parameter", "a parameter that the optimizer's steps do not change", 1, "steps"},
    CheckRule{"no-gradient", "a parameter without a gradient, or whose gradient is always zero", 1,
              "calls of backward"},
    CheckRule{"ranks-out-of-sync", "parameters that differ between ranks", 0, "relative difference that is still fine"},
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

// Which channels of a module's output were not zero in any call so far.
struct Units {
  std::vector<bool> alive;
  DiffPlace place;
  std::size_t calls = 0;
};

class Checker {
 public:
  Checker(const Reader& reader, const CheckOptions& options) : reader_(reader) {
    for (const CheckRule& rule : kRules) {
      const std::string code(rule.code);
      const bool is_wanted = options.only.empty() || contains(options.only, code);
      if (is_wanted && !contains(options.ignore, code)) limits_[code] = rule.threshold;
    }
    refuse_unknown(options.only);
    refuse_unknown(options.ignore);
    for (const auto& [code, threshold] : options.thresholds) {
      refuse_unknown({code});
      if (const auto found = limits_.find(code); found != limits_.end()) found->second = threshold;
    }
  }

  std::vector<CheckFinding> check() {
    for (EventId id = 0; id < reader_.event_count(); ++id) {
      const EventKind kind = reader_.kind(id);
      if (kind != EventKind::Value && kind != EventKind::Change) continue;
      const Event event = reader_.event(id);
      if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) look_at(id, event, *tensor);
      if (const auto* number = std::get_if<double>(&event.value)) look_at_number(id, event, *number);
    }
    look_at_units();
    look_at_parameters();
    look_at_ranks();
    std::vector<CheckFinding> findings;
    for (const CheckRule& rule : kRules)
      if (const auto found = findings_.find(std::string(rule.code)); found != findings_.end())
        findings.push_back(std::move(found->second));
    return findings;
  }

 private:
  static bool contains(const std::vector<std::string>& list, std::string_view text) {
    return std::find(list.begin(), list.end(), text) != list.end();
  }

  static void refuse_unknown(const std::vector<std::string>& codes) {
    for (const std::string& code : codes)
      if (std::none_of(kRules.begin(), kRules.end(), [&](const CheckRule& rule) { return rule.code == code; }))
        throw Error(ErrorCode::InvalidArgument, fmt::format("there is no rule '{}': see tenscope check --rules", code));
  }

  std::optional<double> limit(const std::string& code) const {
    const auto found = limits_.find(code);
    return found == limits_.end() ? std::nullopt : std::optional(found->second);
  }

  DiffPlace place_of(EventId id, const Event& event) const {
    return {.root = event.root,
            .module = event.scope,
            .name = event.name,
            .io = std::string(event.io_word()),
            .phase = std::string(event.phase_word()),
            .cls = event.cls,
            .site = event.site,
            .step = event.step,
            .call = event.call,
            .rank = reader_.writers()[reader_.writer_index(id)].rank};
  }

  void report(const std::string& code, const DiffPlace& place, double value, std::string message) {
    const auto [found, is_new] = findings_.try_emplace(code);
    if (is_new)
      found->second = {code, place, std::move(message), value, 1};
    else
      ++found->second.count;
  }

  void look_at(EventId id, const Event& event, const TensorRecord& tensor) {
    const Stats& stats = tensor.stats;
    const Io io = event.io;
    const bool is_gradient = io == Io::Grad || io == Io::GradOutput || io == Io::GradInput;
    const auto place = [&] { return place_of(id, event); };
    if (const auto most = limit("nan"); most && static_cast<double>(stats.nan) > *most)
      report_nan(place(), static_cast<double>(stats.nan), stats.count);
    const auto infinite = static_cast<double>(stats.pos_inf + stats.neg_inf);
    const bool may_be_mask =
        io == Io::Input || io == Io::Local || io == Io::Buffer || io == Io::None || io == Io::Other;
    if (const auto most = limit("inf"); most && infinite > *most && !may_be_mask)
      report("inf", place(), infinite,
             fmt::format("{} has {:.0f} infinite elements of {}", event.name, infinite, stats.count));
    if (const auto part = limit("overflow");
        part && is_real(tensor.dtype) && stats.abs_max > *part * largest_number(tensor.dtype))
      report("overflow", place(), stats.abs_max,
             fmt::format("{} reaches {:.4g}; {} ends at {:.4g}", event.name, stats.abs_max, to_string(tensor.dtype),
                         largest_number(tensor.dtype)));
    if (io == Io::Output && stats.count > 1 && is_real(tensor.dtype)) look_at_output(id, event, tensor);
    if (is_gradient) look_at_gradient(id, event, tensor);
    if (io == Io::Grad || io == Io::Param) follow_parameter(id, event, tensor, io);
  }

  void report_nan(const DiffPlace& place, double value, std::int64_t count) {
    DiffPlace origin = place;
    std::string why =
        fmt::format("it arises in {}: what came before has none", place.module.empty() ? "the model" : place.module);
    if (place.io == "input") {
      origin.module = place.module.empty() ? "" : std::string(compare::parent_path(place.module));
      why = place.module.empty() ? "it comes with the data"
                                 : fmt::format("it arises in the code of {}, before it calls {}",
                                               origin.module.empty() ? "the model" : origin.module, place.module);
    } else if (place.phase == "init") {
      why = "it is there before the first forward";
    }
    report("nan", origin, value, fmt::format("{} has {:.0f} NaN of {} elements; {}", place.name, value, count, why));
  }

  void look_at_number(EventId id, const Event& event, double number) {
    if (limit("nan") && std::isnan(number)) report("nan", place_of(id, event), 1, fmt::format("{} is NaN", event.name));
    if (limit("inf") && std::isinf(number))
      report("inf", place_of(id, event), 1, fmt::format("{} is infinite", event.name));
  }

  void look_at_output(EventId id, const Event& event, const TensorRecord& tensor) {
    const Stats& stats = tensor.stats;
    if (stats.zero == stats.count) {
      if (limit("zero-output") && static_cast<double>(++zero_calls_[event.root + event.name]) >= *limit("zero-output"))
        report("zero-output", place_of(id, event), 0,
               fmt::format("{} is all zero ({} elements)", event.name, stats.count));
    } else if (limit("constant-output") && stats.nan == 0 && stats.min == stats.max) {
      if (static_cast<double>(++constant_calls_[event.root + event.name]) >= *limit("constant-output"))
        report("constant-output", place_of(id, event), stats.min,
               fmt::format("{} is {:.6g} in all its {} elements", event.name, stats.min, stats.count));
    }
    if (limit("dead-units") && tensor.has_bytes() && tensor.shape.size() >= 2 && stats.zero > 0)
      follow_units(id, event, tensor);
  }

  // Channels are on the second axis of images and volumes, else on the last one.
  void follow_units(EventId id, const Event& event, const TensorRecord& tensor) {
    const std::size_t axis = tensor.shape.size() >= 4 ? 1 : tensor.shape.size() - 1;
    const auto width = static_cast<std::size_t>(tensor.shape[axis]);
    std::size_t inner = 1;
    for (std::size_t k = axis + 1; k < tensor.shape.size(); ++k) inner *= static_cast<std::size_t>(tensor.shape[k]);
    const auto [found, is_new] = units_.try_emplace(event.root + event.name);
    Units& units = found->second;
    if (is_new) {
      units.alive.assign(width, false);
      units.place = place_of(id, event);
    }
    if (units.alive.size() != width || width < 2 || static_cast<std::size_t>(tensor.stats.count) < 4 * width) return;
    ++units.calls;
    const TensorData data = reader_.tensor(id);
    const kernels::ElementReader elements(data.view);
    std::vector<std::byte> scratch(elements.item_size() * inner);
    kernels::visit_dtype(tensor.dtype, [&](auto tag) {
      using T = decltype(tag);
      if constexpr (!kernels::kIsComplex<T>) {
        for (std::int64_t row = 0; row * static_cast<std::int64_t>(inner) < elements.count(); ++row) {
          const std::size_t unit = static_cast<std::size_t>(row) % width;
          if (units.alive[unit]) continue;
          const std::byte* bytes =
              elements.read(row * static_cast<std::int64_t>(inner), static_cast<std::int64_t>(inner), scratch.data());
          for (std::size_t i = 0; i < inner; ++i)
            if (kernels::to_double(kernels::load<T>(bytes + i * sizeof(T))) != 0) {
              units.alive[unit] = true;
              break;
            }
        }
      }
    });
  }

  void look_at_units() {
    for (const auto& [name, units] : units_) {
      if (units.calls == 0) continue;
      const auto dead = static_cast<double>(std::count(units.alive.begin(), units.alive.end(), false));
      const double part = dead / static_cast<double>(units.alive.size());
      if (part > *limit("dead-units") && part < 1)
        report("dead-units", units.place, part,
               fmt::format("{:.0f} of {} channels of {} are zero in all of {} calls", dead, units.alive.size(),
                           units.place.name, units.calls));
    }
  }

  void look_at_gradient(EventId id, const Event& event, const TensorRecord& tensor) {
    const Stats& stats = tensor.stats;
    if (const auto most = limit("exploding-gradient"); most && stats.l2 > *most)
      report("exploding-gradient", place_of(id, event), stats.l2,
             fmt::format("{} has a norm of {:.3g}", event.name, stats.l2));
    const double mean_square = stats.count > 0 ? stats.l2 / std::sqrt(static_cast<double>(stats.count)) : 0;
    if (const auto least = limit("vanishing-gradient"); least && mean_square > 0 && mean_square < *least)
      report("vanishing-gradient", place_of(id, event), mean_square,
             fmt::format("{} has a root mean square of {:.3g}", event.name, mean_square));
  }

  struct Parameter {
    DiffPlace place;
    Fingerprint first;
    bool has_changed = false;
    std::size_t steps = 0, gradients = 0;
  };

  void follow_parameter(EventId id, const Event& event, const TensorRecord& tensor, Io io) {
    const std::string name(io == Io::Grad ? parameter_of_gradient(event.name) : event.name);
    const DiffPlace place = place_of(id, event);
    const auto [found, is_new] = parameters_.try_emplace({place.rank, event.root, name});
    Parameter& parameter = found->second;
    if (is_new) parameter.place = place;
    if (io == Io::Grad) {
      backward_calls_ = std::max(backward_calls_, static_cast<std::size_t>(event.call) + 1);
      if (tensor.stats.zero < tensor.stats.count) ++parameter.gradients;
      return;
    }
    if (parameter.steps++ == 0)
      parameter.first = tensor.fingerprint;
    else
      parameter.has_changed |= !(parameter.first == tensor.fingerprint);
  }

  void look_at_parameters() {
    for (const auto& [key, parameter] : parameters_) {
      const std::string& name = std::get<2>(key);
      DiffPlace place = parameter.place;
      place.name = name;
      if (const auto steps = limit("unchanged-parameter");
          steps && static_cast<double>(parameter.steps) > *steps && !parameter.has_changed)
        report("unchanged-parameter", place, static_cast<double>(parameter.steps - 1),
               fmt::format("{} is the same after {} steps", name, parameter.steps - 1));
      if (const auto calls = limit("no-gradient");
          calls && backward_calls_ > 0 && static_cast<double>(backward_calls_) >= *calls && parameter.gradients == 0)
        report("no-gradient", place, static_cast<double>(backward_calls_),
               fmt::format("{} has no gradient after {} calls of backward", name, backward_calls_));
    }
  }

  void look_at_ranks() {
    const auto most = limit("ranks-out-of-sync");
    std::set<int> ranks;
    for (const WriterInfo& writer : reader_.writers()) ranks.insert(writer.rank);
    if (!most || ranks.size() < 2) return;
    for (const RankDifference& difference : diff_ranks(reader_.path()))
      if (difference.place.io == "param" && difference.rel_max > *most)
        report("ranks-out-of-sync", difference.place, difference.rel_max,
               fmt::format("{} differs on rank {} from step {} on", difference.place.name, difference.ranks.front(),
                           difference.place.step));
  }

  const Reader& reader_;
  std::map<std::string, double> limits_;
  std::map<std::string, CheckFinding> findings_;
  std::map<std::string, std::size_t> zero_calls_, constant_calls_;
  std::map<std::string, Units> units_;
  std::map<std::tuple<int, std::string, std::string>, Parameter> parameters_;
  std::size_t backward_calls_ = 0;
};

}  // namespace

std::span<const CheckRule> check_rules() { return kRules; }

std::vector<CheckFinding> check_run(const std::filesystem::path& run, const CheckOptions& options) {
  const Reader reader(run);
  return Checker(reader, options).check();
}

}  // namespace tenscope
