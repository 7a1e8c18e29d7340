#include <array>

#include "tenscope/diff.hpp"

namespace tenscope {

std::string_view to_string(DiffVerdict verdict) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"equal", "noise", "differs", "unknown", "nothing"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string_view to_string(DiffCause cause) noexcept {
  constexpr std::array<std::string_view, 21> kNames = {"model_input",
                                                       "submodule_input",
                                                       "extra_input",
                                                       "parameter_of_its_own",
                                                       "output",
                                                       "changed_input",
                                                       "value",
                                                       "buffer",
                                                       "initial",
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

}  // namespace tenscope
