#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "compare/missing_parts.hpp"
#include "compare/not_seen.hpp"
#include "core/printable.hpp"
#include "report/run_diff.hpp"
#include "report/values.hpp"

namespace tenscope::report {
namespace {

std::string_view run_name(int side) { return side == 0 ? "first" : "second"; }

// "0.31 (42 % of the largest |a|)": the largest difference.
std::string largest_in_words(const DiffMetrics& metrics) {
  const double part = metrics.rel_max;
  if (std::isinf(metrics.max_abs)) return "is beyond what a float64 holds";
  const std::string largest = fmt::format("{:.3g}", metrics.max_abs);
  // One that no part can be told of: NaN or infinities on one side count as infinitely far.
  const bool has_other_finite = metrics.nan_a != metrics.nan_b || metrics.inf_a != metrics.inf_b;
  if (!std::isfinite(part)) return has_other_finite ? largest : largest + " (a is all zero)";
  if (part >= 10) return fmt::format("{} ({:.3g} times the largest |a|)", largest, part);
  if (part >= 0.001) return fmt::format("{} ({:.3g} % of the largest |a|)", largest, 100 * part);
  return fmt::format("{} ({:.2g} of the largest |a|)", largest, part);
}

// A number that was written so that it reads back as the same, with the digits that a person looks at.
std::string shortened(const std::string& number) {
  constexpr std::size_t kLong = 8;
  if (number.size() <= kLong || number.find_first_of(".e") == std::string::npos || number.front() == '(') return number;
  return fmt::format("{:.6g}", std::strtod(number.c_str(), nullptr));
}

// Both values of the worst element, with as many digits as tell them apart.
std::pair<std::string, std::string> shown_values(const DiffMetrics& metrics) {
  std::string a = shortened(metrics.worst_a), b = shortened(metrics.worst_b);
  if (a == b) return {metrics.worst_a, metrics.worst_b};
  return {std::move(a), std::move(b)};
}

bool is_float(const std::string& type) { return type.starts_with("float") || type.starts_with("bfloat"); }

std::string ratio_in_words(const DiffMetrics& metrics) {
  if (!is_float(metrics.dtype_a) && !is_float(metrics.dtype_b)) return {};
  const double a = std::strtod(metrics.worst_a.c_str(), nullptr), b = std::strtod(metrics.worst_b.c_str(), nullptr);
  if (a == 0 || !std::isfinite(a) || !std::isfinite(b)) return {};
  const std::string ratio = fmt::format("{:.6g}", b / a);
  return ratio == "1" ? std::string() : fmt::format(": b = {} a", ratio);
}

std::string end_in_words(const DiffOrigin& origin) {
  const DiffReason& reason = origin.reason;
  std::string text = fmt::format("the {} run ends here", run_name(reason.ended));
  if (!reason.exception.empty()) text += fmt::format(" by {}", reason.exception);
  const bool goes_on = origin.metrics.obstacle != DiffObstacle::None || !reason.tensor.empty();
  if (goes_on) text += fmt::format("; the {} run goes on", run_name(1 - reason.ended));
  return text;
}

// "while its inputs and its parameters agree": of what was compared.
std::string while_the_rest_agrees(const DiffReason& reason, std::string_view owner) {
  std::vector<std::string> parts;
  if (reason.has_inputs) parts.push_back(fmt::format("{} inputs", owner));
  if (reason.has_parameters) parts.push_back(fmt::format("{} parameters", owner));
  if (reason.has_submodules) parts.push_back(fmt::format("all that {} submodules returned", owner));
  if (parts.empty()) return "; what it is computed from was not recorded";
  std::string text = ", while " + parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) text += (i + 1 < parts.size() ? ", " : " and ") + parts[i];
  return text + (reason.is_partial ? " agree, as far as both runs have them" : " agree");
}

std::string what_came_before_agrees(const DiffReason& reason) {
  return reason.is_partial ? "what was recorded before it agrees, as far as both runs have it"
                           : "what was recorded before it agrees";
}

std::string draw_in_words(const DiffDistribution& distribution) {
  if (distribution.is_another_draw())
    return ", and looks like another draw of the same distribution: another seed, or other draws before it";
  return distribution.is_independent ? ", and is drawn from another distribution" : "";
}

std::string cause_in_words(const DiffOrigin& origin) {
  const DiffReason& reason = origin.reason;
  const std::string blamed = blamed_in_words(origin.place);
  const std::string module = reason.module.empty()
                                 ? blamed_in_words({.cls = origin.place.cls, .is_function = origin.place.is_function})
                                 : reason.module;
  switch (reason.cause) {
    case DiffCause::ModelInput:
      return "the input of the model differs; " + what_came_before_agrees(reason);
    case DiffCause::SubmoduleInput:
      return fmt::format("the input of {} differs{}", module, while_the_rest_agrees(reason, blamed + "'s"));
    case DiffCause::ExtraInput:
      return fmt::format("{} is given {} in one of the runs only, and what it makes of its inputs differs", module,
                         reason.tensor);
    case DiffCause::ParameterOfItsOwn:
      return fmt::format(
          "{} has a parameter {} of its own in one of the runs only: in the other it is tied to another "
          "module's, or there is none; what {} returns differs",
          module, reason.tensor, module);
    case DiffCause::Output:
      return fmt::format("the output of {} differs{}", module, while_the_rest_agrees(reason, "its"));
    case DiffCause::ChangedInput:
      return fmt::format("what becomes of an input of {} differs{}", module, while_the_rest_agrees(reason, "its"));
    case DiffCause::Value:
      return fmt::format("{} differs; {}", reason.tensor, what_came_before_agrees(reason));
    case DiffCause::Buffer:
      return fmt::format("the buffer {} differs after the call, while the inputs of {} agree", reason.tensor, module);
    case DiffCause::Initial:
      return fmt::format("{} differs before the first forward{}", reason.tensor,
                         origin.distribution ? draw_in_words(*origin.distribution) : "");
    case DiffCause::ExtraDraw:
      return fmt::format(
          "{} has a parameter {} in one of the runs only, and what was drawn after it looks like another "
          "draw of the same distributions",
          module, reason.tensor);
    case DiffCause::ChangedBetweenCalls:
      return fmt::format("{} differs before the call, changed by something else than the optimizer", reason.tensor);
    case DiffCause::Loss:
      return "the loss differs, while the outputs of the model agree";
    case DiffCause::GradientReaching:
      return fmt::format(
          "the gradient of {}'s output differs, while the gradients that reach {} and those that its "
          "later submodules passed on agree",
          module, blamed);
    case DiffCause::GradientLeaving:
      return fmt::format("the gradient that {} passes on differs, while the one that reaches it agrees", module);
    case DiffCause::GradientCutOff:
      return fmt::format("no gradient goes from the input of {} back into {} in one of the runs: it was cut off there",
                         module, blamed);
    case DiffCause::GradientOfParameter:
      return fmt::format("the gradient of {} differs, while the gradients that reach {} agree", reason.tensor, module);
    case DiffCause::GradientUnexplained:
      return fmt::format("the gradient of {} differs, while outputs and loss agree", reason.tensor);
    case DiffCause::GradientBetween:
      return fmt::format("the gradients of the modules before {} differ, those of the modules after it agree", blamed);
    case DiffCause::GradientBeforeUpdate:
      return fmt::format("the gradient of {} differs when the optimizer begins, while it agreed after backward",
                         reason.tensor);
    case DiffCause::Update:
      return fmt::format("{} differs after the optimizer's step, while the gradients agree", reason.tensor);
    case DiffCause::UpdateFromRounding:
      return fmt::format(
          "{} differs after the optimizer's step, while the gradients agree; by no more than rounding at "
          "first, but beyond that in step {}",
          reason.tensor, reason.step);
    case DiffCause::End:
      return end_in_words(origin);
  }
  return {};
}

}  // namespace

std::string plural(std::size_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

std::string module_in_words(const std::string& path) { return path.empty() ? "the model" : printable(path); }

std::string blamed_in_words(const DiffPlace& place) {
  return place.module.empty() && place.is_function && !place.cls.empty() ? place.cls : module_in_words(place.module);
}

std::string moment_in_words(const DiffPlace& place) {
  std::string text = fmt::format("step {}", place.step);
  if (place.io != "param" && place.phase != "init") text += fmt::format(", call {}", place.call);
  if (place.rank != 0) text += fmt::format(", rank {}", place.rank);
  if (!place.phase.empty()) text += ", " + place.phase;
  return text;
}

std::string tensor_in_words(const DiffOrigin& origin) {
  const DiffPlace& place = origin.place;
  const std::string name = printable(place.name);
  if (place.io == "loss") return "the loss";
  if (place.io == "grad") return "gradient of " + name;
  if (place.io == "param") return "parameter " + name;
  if (place.io == "buffer") return "buffer " + name;
  if (place.io == "input" && origin.seen_in.empty())
    return fmt::format("input of {} ({})", blamed_in_words(place), name);
  return name;
}

std::string place_in_words(const DiffPlace& place) {
  const bool is_of_parameter = place.io == "grad" && place.name.find("grad_output.") == std::string::npos &&
                               place.name.find("grad_input.") == std::string::npos;
  return fmt::format("{}{} ({})", is_of_parameter ? "gradient of " : "", place.name, moment_in_words(place));
}

std::string reason_in_words(const DiffOrigin& origin) {
  const DiffReason& reason = origin.reason;
  std::string text = cause_in_words(origin);
  if (!reason.changed_input.empty())
    text += fmt::format(", but for {}, which {} changes in place in one of the runs only", reason.changed_input,
                        blamed_in_words(origin.place));
  if (reason.is_of_all)
    text += fmt::format("; those of all {} begin to differ together: look at {}", plural(origin.tensors, "parameter"),
                        origin.place.phase == "optimizer" ? "the optimizer" : "the program around the model");
  if (!reason.other_dtype.empty()) text += fmt::format("; {} has equal values in another dtype", reason.other_dtype);
  return text;
}

std::string confidence_in_words(const DiffOrigin& origin) {
  const DiffReason& reason = origin.reason;
  const std::string_view level = to_string(confidence_of(reason.doubt));
  switch (reason.doubt) {
    case DiffDoubt::None:
      if (!origin.last_agreeing) return fmt::format("{}: nothing that was recorded before it differs", level);
      if (reason.noise_before == 0)
        return fmt::format("{}: as far as it was recorded, what comes before it agrees bit for bit", level);
      return fmt::format("{}: what it depends on agrees but for rounding noise (up to {:.2g})", level,
                         reason.noise_before);
    case DiffDoubt::NearNoise:
      return fmt::format(
          "{}: what it depends on differs by up to {:.2g}, which is taken for rounding noise, and the difference is "
          "not "
          "much larger",
          level, reason.noise_before);
    case DiffDoubt::OneSideOnly:
      return fmt::format("{}: the tensor is in one of the runs only, so its values could not be compared", level);
    case DiffDoubt::InputsNotSeen:
      return fmt::format("{}: the inputs of {} were not recorded; the difference may come with them", level,
                         blamed_in_words(origin.place));
    case DiffDoubt::OtherName:
      return fmt::format("{}: {} has another name in the second run, and only its structure says that it is the same",
                         level, blamed_in_words(origin.place));
    case DiffDoubt::WayNotSeen:
      return fmt::format("{}: the gradients inside the model were not recorded, only those of its parameters", level);
    case DiffDoubt::ByOrder:
      return fmt::format("{}: that the two tensors are the same thing is known by their order only", level);
    case DiffDoubt::NotKept:
      return fmt::format("{}: it may have begun earlier, where only statistics were kept", level);
  }
  return {};
}

std::string distribution_in_words(const DiffDistribution& d) {
  const auto values = [](double mean, double std) {
    return std == 0 ? fmt::format("all {:.4g}", mean) : fmt::format("mean {:.3g}, std {:.4g}", mean, std);
  };
  std::string text = fmt::format("{} became {}", values(d.mean_a, d.std_a), values(d.mean_b, d.std_b));
  if (d.std_a > 0 && d.std_b > 0 && !d.is_same) text += fmt::format(" ({:.3g} times the std)", d.std_b / d.std_a);
  if (d.zeros_a != d.zeros_b && d.std_a > 0 && d.std_b > 0)
    text += fmt::format(", {} zeros became {}", d.zeros_a, d.zeros_b);
  return text;
}

std::string update_in_words(const DiffUpdate& update) {
  std::string text;
  if (!update.optimizer_a.empty()) {
    text = update.optimizer_a;
    if (update.optimizer_b != update.optimizer_a) text += fmt::format(" became {}", update.optimizer_b);
    text += ": ";
  }
  std::vector<std::string> parts;
  const std::string ratio = fmt::format("{:.4g}", update.ratio);
  if (update.moved_both > 0)
    parts.push_back(ratio == "1" ? std::string("most elements move as far in both runs")
                                 : fmt::format("b's update is {} times a's (median)", ratio));
  if (update.flipped > 0)
    parts.push_back(fmt::format("{} of {} elements move the other way", update.flipped, update.moved_both));
  if (update.moved_a != update.moved_b)
    parts.push_back(fmt::format("{} move in the first run, {} in the second",
                                plural(static_cast<std::size_t>(update.moved_a), "element"), update.moved_b));
  return text + fmt::format("{}", fmt::join(parts, ", "));
}

std::string rounding_in_words(const DiffRounding& rounding) {
  if (!rounding.beyond) return fmt::format("everything else is within {}'s rounding", rounding.dtype);
  const DiffOrigin& beyond = *rounding.beyond;
  return fmt::format("beyond {}'s rounding first: {} in {} ({}): {}", rounding.dtype, tensor_in_words(beyond),
                     blamed_in_words(beyond.place), moment_in_words(beyond.place), metrics_in_words(beyond.metrics));
}

std::vector<std::string> show_commands(const RunDiff& diff, const DiffOrigin& origin) {
  std::vector<std::string> commands;
  const auto add = [&](const std::string& run, const std::optional<DiffEvent>& event) {
    if (!event) return;
    std::string command = fmt::format("tenscope show {} {} --step {} --call {}", shell_word(run),
                                      shell_word(event->name), event->step, event->call);
    if (event->rank || origin.place.rank != 0)
      command += fmt::format(" --rank {}", event->rank.value_or(origin.place.rank));
    if (!event->slice.empty()) command += fmt::format(" --slice {}", shell_word(event->slice));
    commands.push_back(std::move(command));
  };
  add(diff.a, origin.event_a);
  add(diff.b, origin.event_b);
  return commands;
}

std::string obstacle_in_words(DiffObstacle obstacle) {
  switch (obstacle) {
    case DiffObstacle::None:
      return {};
    case DiffObstacle::OnlyStatistics:
      return "only statistics were kept";
    case DiffObstacle::OnlySketches:
      return "by sketch";
    case DiffObstacle::Shapes:
      return "the shapes differ";
    case DiffObstacle::MissingInFirst:
      return "missing in the first run";
    case DiffObstacle::MissingInSecond:
      return "missing in the second run";
    case DiffObstacle::Kinds:
      return "a tensor in one run only";
    case DiffObstacle::Texts:
      return "the values differ";
  }
  return {};
}

std::string metrics_in_words(const DiffMetrics& metrics) {
  const auto [a, b] = shown_values(metrics);
  if (metrics.obstacle == DiffObstacle::Shapes)
    return fmt::format("the shapes differ: [{}] and [{}]", fmt::join(metrics.shape_a, ", "),
                       fmt::join(metrics.shape_b, ", "));
  if (metrics.obstacle == DiffObstacle::Texts) return fmt::format("{} became {}", a, b);
  const bool is_measured = metrics.obstacle == DiffObstacle::None || metrics.obstacle == DiffObstacle::OnlyStatistics ||
                           metrics.obstacle == DiffObstacle::OnlySketches;
  if (!is_measured) return obstacle_in_words(metrics.obstacle);
  std::string text;
  if (metrics.nan_a != metrics.nan_b)
    text += fmt::format("{} NaN in the first, {} in the second; ", metrics.nan_a, metrics.nan_b);
  if (metrics.inf_a != metrics.inf_b)
    text += fmt::format("{} infinities in the first, {} in the second; ", metrics.inf_a, metrics.inf_b);
  const std::string types =
      metrics.dtype_a == metrics.dtype_b ? "" : fmt::format("; {} became {}", metrics.dtype_a, metrics.dtype_b);
  if (metrics.obstacle == DiffObstacle::OnlyStatistics)
    return text + fmt::format("only statistics were kept: max |b-a| is at least {}", largest_in_words(metrics)) + types;
  if (metrics.obstacle == DiffObstacle::OnlySketches && metrics.rel_l2 == 0 && text.empty())
    return "the fingerprints differ, by less than sketches tell" + types;
  if (metrics.obstacle == DiffObstacle::OnlySketches)
    return text + fmt::format("by sketch: rel. L2 about {:.1e}", metrics.rel_l2) + types;
  if (metrics.count == 1 && !a.empty())
    return text + fmt::format("{} became {}{}", a, b, ratio_in_words(metrics)) + types;
  // Where no two finite elements differ, it is by places or signs of infinities and NaN.
  const bool is_nonfinite_only = metrics.max_abs == 0 && metrics.differing > 0;
  if (!is_nonfinite_only) text += fmt::format("max |b-a| {}, ", largest_in_words(metrics));
  text += fmt::format("{} of {} elements", metrics.differing, metrics.count);
  if (!metrics.worst_index.empty())
    text += fmt::format(", worst at [{}]{}: {} became {}", fmt::join(metrics.worst_index, ", "),
                        metrics.row.empty() ? "" : fmt::format(" ({})", metrics.row), a, b);
  return text + types;
}

std::string engine_noise_in_words(const DiffEngineNoise& noise) {
  return fmt::format("weights {:.2g} % apart (Euclidean), other tensors that agree up to {:.2g} %: {}",
                     100 * noise.weights, 100 * noise.largest, noise.tensor);
}

std::string measured_noise_in_words(const RunDiff& diff) {
  return fmt::format("measured: {}; {} judged by it", fmt::join(diff.noise_profiles, ", "),
                     diff.judged_by_profile == 1 ? "1 value that differs was"
                                                 : fmt::format("{} values that differ were", diff.judged_by_profile));
}

std::string setting_in_words(const DiffSetting& setting) {
  const auto plain = [](const std::string& value) {  // without JSON's quotes
    const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
    const std::string text = is_quoted ? value.substr(1, value.size() - 2) : value;
    return text.empty() ? std::string("nothing") : text;
  };
  constexpr std::string_view kVersions = "versions.";
  const bool is_version = setting.name.starts_with(kVersions);
  return fmt::format("{}{} {} became {}", is_version ? setting.name.substr(kVersions.size()) : setting.name,
                     is_version ? "" : ":", plain(setting.a), plain(setting.b));
}

std::string note_in_words(const DiffNote& note) {
  const std::string_view run = run_name(note.side);
  switch (note.kind) {
    case DiffNote::Kind::OtherClass:
      return fmt::format("{} is a {} in the first run and a {} in the second", module_in_words(note.subject), note.a,
                         note.b);
    case DiffNote::Kind::OtherClasses:
      return fmt::format("{} of another class in the second run",
                         note.count == 1 ? "1 more module is" : fmt::format("{} more modules are", note.count));
    case DiffNote::Kind::OtherDtype:
      return fmt::format("{} has equal values in another dtype: {} became {}{}", note.subject, note.a, note.b,
                         note.count > 1 ? fmt::format("; so have {}", plural(note.count - 1, "more tensor")) : "");
    case DiffNote::Kind::OtherDraws:
      return fmt::format(
          "{} another draw of the same distribution",
          note.count == 1 ? "1 initial value looks like" : fmt::format("{} initial values look like", note.count));
    case DiffNote::Kind::IdleInput:
      return fmt::format("{} differs, but nothing comes of it{}", note.subject,
                         note.count > 0 ? fmt::format("; so do {}", plural(note.count, "more tensor")) : "");
    case DiffNote::Kind::MissingRank:
      return fmt::format("rank {} is only in the {} run", note.count, run);
    case DiffNote::Kind::OtherRanks:
      return fmt::format("{} differ{} from the same step and phase on: which rank was first is not known", note.a,
                         note.count == 1 ? "s" : "");
    case DiffNote::Kind::ExtraCalls:
      return fmt::format(
          "the runs call their models a different number of times; calls with the same inputs were "
          "compared, these have no partner: {} run, {} of {}: {}{}",
          run, plural(note.count, "call"), note.subject, note.a,
          note.count > static_cast<std::size_t>(std::count(note.a.begin(), note.a.end(), ',') + 1) ? ", ..." : "");
    case DiffNote::Kind::NotSeen:
      return fmt::format("{} run: not seen{}: {}", run, note.subject.empty() ? "" : " in " + note.subject,
                         compare::not_seen_in_words(note.a));
    case DiffNote::Kind::Lost:
      return fmt::format("{} run: {}", run, note.a);
    case DiffNote::Kind::NotClosed:
      return fmt::format("{} run: {} was not closed: the process died or is still running", run, note.subject);
    case DiffNote::Kind::Failed:
      return fmt::format("{} run: it ended by an exception: {}", run, note.a);
    case DiffNote::Kind::Damage:
      return fmt::format("{} run: {} at byte {} of {}", run, note.a, note.count, note.subject);
    case DiffNote::Kind::Exchanged:
      return fmt::format("{} holds {}, whose place would be {} as {} others say: were weights exchanged?", note.subject,
                         note.a, note.b, note.count);
    case DiffNote::Kind::OddLayout:
      return fmt::format("{}: {}; {} others like it: {}. Was it converted as they were?", note.subject, note.a,
                         note.count, note.b);
    case DiffNote::Kind::OtherForm:
      return fmt::format(
          "{} and {} hold other numbers{}, but what was made with them agrees: one engine keeps them in another form "
          "(folded, scaled, shifted)",
          note.a, note.b, note.count > 1 ? fmt::format(", as do {} more pairs of parameters", note.count - 1) : "");
    case DiffNote::Kind::InPart:
      return fmt::format("of {} ({} run) a part alone could be compared: {}{}", note.subject, run, note.a,
                         note.count > 1 ? fmt::format("; {} such tensors", note.count) : "");
    case DiffNote::Kind::ByContent:
      return fmt::format("{} paired by content, with no help from names: `tenscope map` lists them",
                         note.count == 1 ? "1 tensor was" : fmt::format("{} tensors were", note.count));
    case DiffNote::Kind::EndsUnpaired:
      if (note.a.empty() || note.b.empty())
        return fmt::format("the {} run ends with {}, which could not be paired: this says nothing of it",
                           note.b.empty() ? "first" : "second", note.b.empty() ? note.a : note.b);
      return fmt::format(
          "the runs end with tensors that could not be paired, {} and {}: this says nothing of what the models return "
          "(--map '{}={}' compares them)",
          note.a, note.b, note.a, note.b);
    case DiffNote::Kind::NothingInCommon:
      return "the runs have nothing in common: no tensor of one could be paired with one of the other";
    case DiffNote::Kind::NoOutputs:
      return "no output could be compared, only parameters and inputs: this says nothing of what the models compute";
    case DiffNote::Kind::OtherLayout:
    case DiffNote::Kind::NotAssembled:
    case DiffNote::Kind::OnlyByRanks:
      return layout_note_in_words(note);
    case DiffNote::Kind::HiddenByNoise:
      return fmt::format("the noise that was measured of {}{} is so large that it hides whatever else differs there",
                         note.subject, note.count > 1 ? fmt::format(" and {} more values", note.count - 1) : "");
    case DiffNote::Kind::OnlyDescribed:
      return fmt::format("{}{} could not be recorded (no tensor, number, text or nest of them), and was not compared",
                         note.subject, note.count > 1 ? fmt::format(", like {} more values,", note.count - 1) : "");
    case DiffNote::Kind::RoughAlignment:
      return "the runs are too long to be aligned exactly where they differ: some pairs may be missing";
  }
  return {};
}

std::string coverage_in_words(const RunDiff& diff) {
  std::string text = fmt::format("{} of {} compared", diff.compared, diff.total_a);
  if (diff.total_b != diff.total_a) text += fmt::format(" ({} in the second run)", diff.total_b);
  text += fmt::format(": {} equal in bits", diff.bit_equal);
  if (diff.same_values > 0) text += fmt::format(", {} equal in value", diff.same_values);
  if (diff.noise > 0 || diff.first_divergence) text += fmt::format(", {} within rounding noise", diff.noise);
  if (diff.unknown > 0) text += fmt::format(", {} unknown", diff.unknown);
  if (diff.idle > 0) text += fmt::format(", {} differ without effect", diff.idle);
  const std::size_t judged =
      diff.bit_equal + diff.same_values + diff.noise + diff.unknown + diff.idle + diff.consequences;
  const std::size_t start = diff.compared > judged ? diff.compared - judged : 0;
  if (start > 0) text += fmt::format(", {} start a difference", start);
  if (diff.consequences > 0) text += fmt::format(", {} follow from it", diff.consequences);
  return text;
}

bool is_difference(const RunDiff& diff, bool strict) {
  return !diff.within_tolerance() || (strict && !(diff.renamed.empty() && diff.unmatched.empty()));
}

std::string renamed_in_words(const RunDiff& diff) {
  return plural(diff.renamed.size(), diff.content_pairs.empty() ? "module" : "tensor");
}

namespace {

// Tensors of which the other run has one part and no more.
std::size_t compared_in_part(const RunDiff& diff) {
  std::size_t count = 0;
  for (const DiffNote& note : diff.notes)
    if (note.kind == DiffNote::Kind::InPart) count += note.count;
  return count;
}

}  // namespace

std::string run_diff_answer(const RunDiff& diff, bool strict) {
  if (diff.first_divergence) {
    const DiffOrigin& first = *diff.first_divergence;
    if (first.reason.cause == DiffCause::End)
      return fmt::format("first divergence: the {} run ends at {} ({})", run_name(first.reason.ended),
                         blamed_in_words(first.place), moment_in_words(first.place));
    const bool is_of_no_module = first.place.root.empty() && first.place.module.empty();
    return fmt::format("first divergence: {}{} ({})", tensor_in_words(first),
                       is_of_no_module ? "" : " in " + blamed_in_words(first.place), moment_in_words(first.place));
  }
  if (diff.verdict == DiffVerdict::Nothing) {
    if (diff.total_a == 0 && diff.total_b == 0) return "nothing to compare: neither run has a tensor or a number";
    if (diff.total_a == 0 || diff.total_b == 0)
      return fmt::format("nothing to compare: the {} run has no tensor and no number",
                         run_name(diff.total_a == 0 ? 0 : 1));
    return "nothing to compare: the runs have nothing in common";
  }
  const std::size_t in_part = compared_in_part(diff);
  const std::string_view every = diff.idle > 0 ? "every other tensor" : "every tensor";
  std::string text;
  if (diff.verdict == DiffVerdict::Unknown)
    text = diff.unknown > 0
               ? fmt::format("unknown: of {} only statistics were kept, which do not tell how far they are apart",
                             diff.unknown == 1 ? "1 tensor" : fmt::format("{} tensors", diff.unknown))
           : std::ranges::any_of(diff.notes, compare::tells_of_missing_parts)
               ? "unknown: what was compared agrees, but parts of a run are missing"
               : "unknown: what was compared agrees, but not enough was compared to say more";
  else if (diff.rows && !diff.rows->is_complete())
    text = fmt::format("equal as far as compared: {}, {}", row_coverage_in_words(*diff.rows),
                       diff.noise > 0 ? "but for rounding noise" : "the same values");
  else if (diff.compared == diff.bit_equal && diff.compared < diff.total_a)
    text = fmt::format("equal as far as compared: {} of {} tensors and other values, bit for bit", diff.compared,
                       diff.total_a);
  else if (in_part > 0 && diff.noise == 0)
    text = "equal as far as compared: the same values";
  else if (diff.equal())
    text = "equal: every tensor agrees bit for bit";
  else if (diff.compared == diff.bit_equal)
    text = "equal numbers: every tensor on both sides agrees bit for bit";
  else if (diff.noise == 0)
    text = fmt::format("equal numbers: {} on both sides has the same values", every);
  else if (diff.compared < diff.total_a)
    text =
        fmt::format("equal within tolerance as far as compared: {} of {} tensors and other values, only rounding noise",
                    diff.compared, diff.total_a);
  else
    text = "equal within tolerance: only rounding noise";
  if (diff.idle > 0)
    text += fmt::format("; {} without effect",
                        diff.idle == 1 ? "1 tensor differs" : plural(diff.idle, "tensor") + " differ");
  if (in_part > 0) text += fmt::format("; {} compared in part", plural(in_part, "tensor"));
  if (!diff.renamed.empty()) text += fmt::format("; {} renamed", renamed_in_words(diff));
  if (!diff.unmatched.empty()) text += fmt::format("; {} on one side only", diff.unmatched.size());
  if (strict && diff.within_tolerance() && is_difference(diff, true)) text += " (a difference, by --strict)";
  return text;
}

}  // namespace tenscope::report
