#include <array>

#include "tenscope/diff.hpp"

namespace tenscope {

std::string_view to_string(DiffVerdict verdict) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"equal", "noise", "differs", "unknown", "nothing"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string_view to_string(DiffCause cause) noexcept {
  constexpr std::array<std::string_view, 22> kNames = {"model_input",
                                                       "submodule_input",
                                                       "extra_input",
                                                       "parameter_of_its_own",
                                                       "output",
                                                       "changed_input",
                                                       "value",
                                                       "buffer",
                                                       "initial",
                                                       "extra_draw",
                                                       "changed_between_calls",
                                                       "loss",
                                                       "gradient_reaching",
                                                       "gradient_leaving",
                                                       "gradient_cut_off",
                                                       "gradient_of_parameter",
                                                       "gradient_unexplained",
                                                       "gradient_between",
                                                       "gradient_before_update",
                                                       "update",
                                                       "update_from_rounding",
                                                       "end"};
  static_assert(kNames.size() == static_cast<std::size_t>(DiffCause::End) + 1);
  return kNames[static_cast<std::size_t>(cause)];
}

DiffConfidence confidence_of(DiffDoubt doubt) noexcept {
  if (doubt == DiffDoubt::None) return DiffConfidence::High;
  return doubt == DiffDoubt::NotKept ? DiffConfidence::Low : DiffConfidence::Medium;
}

std::string_view to_string(DiffConfidence confidence) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"high", "medium", "low"};
  return kNames[static_cast<std::size_t>(confidence)];
}

}  // namespace tenscope
