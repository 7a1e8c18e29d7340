// What is said of a chain. Overview in check_origins.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "compare/check_origins.hpp"

namespace tenscope::compare {
namespace {

std::string say_kinds(const Event& event) {
  const auto* tensor = std::get_if<TensorRecord>(&event.value);
  if (tensor == nullptr) {
    const double number = std::get<double>(event.value);
    return fmt::format("is {}", std::isnan(number) ? "NaN" : number > 0 ? "+Inf" : "-Inf");
  }
  const Stats& stats = tensor->stats;
  std::string kinds;
  const auto add = [&](std::int64_t count, const char* kind) {
    if (count > 0) kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, kind);
  };
  add(stats.nan, "NaN");
  add(stats.pos_inf, "+Inf");
  add(stats.neg_inf, "-Inf");
  return fmt::format("has {} of {} element{}", kinds, stats.count, stats.count == 1 ? "" : "s");
}

std::string say_sound(const Event& event) {
  if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) {
    const Stats& stats = tensor->stats;
    if (stats.count == 0) return fmt::format("{} is empty", event.name);
    return fmt::format("{} is finite: min {:.4g}, max {:.4g}", event.name, stats.min, stats.max);
  }
  if (const auto* number = std::get_if<double>(&event.value)) return fmt::format("{} is {:.6g}", event.name, *number);
  return fmt::format("{} is finite", event.name);
}

}  // namespace

std::string OriginTracer::said(int node) const {
  if (node == kNone) return "the program";
  const Node& module = nodes_[static_cast<std::size_t>(node)];
  if (module.scope.empty()) return module.cls.empty() ? "the model" : fmt::format("the model ({})", module.cls);
  return module.cls.empty() ? module.scope : fmt::format("{} ({})", module.scope, module.cls);
}

std::string OriginTracer::say_before(const Chain& chain) const {
  std::string text;
  for (const EventId id : chain.before) {
    if (id == kNoEvent) continue;
    const Event event = reader_.event(id);
    const bool is_number = std::holds_alternative<double>(event.value);
    if (!is_number && !std::holds_alternative<TensorRecord>(event.value)) continue;
    const bool is_own = event.io == Io::Input && chain.blamed != kNone &&
                        event.scope == nodes_[static_cast<std::size_t>(chain.blamed)].scope;
    text += fmt::format("; {}{}", is_own ? "its input " : "", say_sound(event));
  }
  if (chain.mask != kNoEvent) text += fmt::format("; a mask is at hand: {}", reader_.event(chain.mask).name);
  return text;
}

std::string OriginTracer::describe(const Chain& chain, const Event& event) const {
  switch (chain.reason) {
    case Reason::Data:
      return "it comes with the data, from outside the model";
    case Reason::Outside:
      return fmt::format("it comes from outside {}: from the data, or from code that was not recorded", event.scope);
    case Reason::CallerCode:
      return fmt::format("it arises in the code of {}, before it calls {}", said(chain.blamed), event.scope);
    case Reason::Output:
      return fmt::format("it arises in {}", said(chain.blamed));
    case Reason::Inside:
      return fmt::format("it arises in {}",
                         chain.blamed == kNone && !event.scope.empty() ? event.scope : said(chain.blamed));
    case Reason::Initial:
      return "it is there before the first forward";
    case Reason::Replaced:
      return "it was put there by something else than the optimizer, between two calls";
    case Reason::Loss:
      return "it arises in the program's own code, which makes the loss";
    case Reason::GradientCode:
      return chain.blamed == kNone ? fmt::format("it arises in the backward of the program's own code, after {}",
                                                 event.scope.empty() ? "the model" : event.scope)
                                   : fmt::format("it arises in the backward of the code of {}, after {}",
                                                 said(chain.blamed), event.scope);
    case Reason::Backward:
      return fmt::format("it arises in the backward of {}", said(chain.blamed));
    case Reason::BackwardPart:
      return fmt::format(
          "it arises in the backward of {}, or of the code right after it (gradients inside the model "
          "were not recorded)",
          said(chain.blamed));
    case Reason::Clipping:
      return "it arises between backward() and the optimizer's step, where gradients are unscaled or clipped";
    case Reason::Optimizer:
      return "it arises in the optimizer's step";
    case Reason::Update:
      return "it arises in the optimizer's step or in its gradient, which was not recorded";
  }
  return {};
}

CheckFinding OriginTracer::finding_of(const Chain& chain, std::string code) const {
  const Event event = reader_.event(chain.origin);
  CheckFinding finding{.code = std::move(code), .place = place_of(reader_, chain.origin, event)};
  DiffPlace& place = finding.place;
  if (chain.blamed != kNone) {
    const Node& blamed = nodes_[static_cast<std::size_t>(chain.blamed)];
    place.module = blamed.scope;
    place.cls = blamed.cls;
    if (place.site.empty()) place.site = blamed.site;
  } else if (chain.reason != Reason::Inside) {
    place.module.clear();
    place.cls.clear();
  }
  const auto* tensor = std::get_if<TensorRecord>(&event.value);
  finding.value =
      tensor == nullptr ? 1 : static_cast<double>(tensor->stats.nan + tensor->stats.pos_inf + tensor->stats.neg_inf);
  finding.message = fmt::format("{} {} at step {}, call {}: {}{}", event.name, say_kinds(event), event.step, event.call,
                                describe(chain, event), say_before(chain));
  if (chain.is_only_negative) finding.message += "; nothing but -Inf follows from it: it may be meant, as a mask";
  if (chain.again > 0)
    finding.message += fmt::format("; it arises again in {} later call{}, the last at step {}", chain.again,
                                   chain.again == 1 ? "" : "s", reader_.step(chain.last_again));
  finding.count = 1 + chain.after;
  finding.again = chain.again;
  finding.others = chain.way;
  return finding;
}

// Ranks exchange gradients: one that is ill on a rank where nothing explains it follows from another rank's chain that
// has reached the gradients in the same step or before.
void OriginTracer::merge_ranks() {
  const auto is_told = [](const Chain& chain) { return chain.is_ill && chain.same_as == kNone; };
  const auto is_of_exchange = [&](const Chain& chain) {
    return chain.reason == Reason::Optimizer || chain.reason == Reason::Update ||
           reader_.event(chain.origin).io == Io::Grad;
  };
  for (Chain& chain : chains_) {
    if (!is_told(chain) || !is_of_exchange(chain)) continue;
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      Chain& other = chains_[i];
      if (other.rank == chain.rank || !is_told(other) || is_of_exchange(other)) continue;
      if (other.gradient_step < 0 || other.gradient_step > reader_.step(chain.origin)) continue;
      other.after += 1 + chain.after;
      chain.same_as = static_cast<int>(i);
      break;
    }
  }
}

std::vector<CheckFinding> OriginTracer::findings(bool wants_nan, bool wants_inf) {
  finish_gradients();
  merge_ranks();
  std::vector<const Chain*> told;
  for (const Chain& chain : chains_)
    if (chain.is_ill && chain.same_as == kNone) told.push_back(&chain);
  std::stable_sort(told.begin(), told.end(), [&](const Chain* x, const Chain* y) {
    return std::tuple(reader_.step(x->origin), x->rank, x->origin) <
           std::tuple(reader_.step(y->origin), y->rank, y->origin);
  });
  std::vector<CheckFinding> findings;
  for (const Chain* chain : told) {
    const Event event = reader_.event(chain->origin);
    const bool is_nan = value_of(chain->origin, event).nan > 0;
    if (is_nan ? wants_nan : wants_inf)
      findings.push_back(finding_of(*chain, is_nan ? "nan" : "inf"));
    else if (is_nan ? (wants_inf && chain->has_inf) : (wants_nan && chain->has_nan))
      findings.push_back(finding_of(*chain, is_nan ? "inf" : "nan"));
  }
  return findings;
}

}  // namespace tenscope::compare
