#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>

// The one way to stdout and stderr. What was recorded may have any name: nothing that a terminal would obey gets there,
// but colours of our own, and a name never becomes two lines. Lines fit the terminal. Where the reader of a pipe has
// left, the program ends.
namespace tenscope::cli {

// Text that is laid out already: its line breaks stay.
struct Lines {
  std::string text;
};

namespace detail {

std::string one_line(std::string_view text);  // line breaks are written out; colours stay

template <class T>
inline constexpr bool kIsText = std::is_convertible_v<const T&, std::string_view>;
template <class T>
inline constexpr bool kIsPath = std::is_same_v<T, std::filesystem::path>;

template <class T>
using Shown =
    std::conditional_t<kIsText<T> || kIsPath<T> || std::is_same_v<T, Lines>, std::string, std::remove_cv_t<T>>;

template <class T>
decltype(auto) shown(const T& value) {
  if constexpr (std::is_same_v<T, Lines>)
    return value.text;
  else if constexpr (kIsPath<T>)
    return one_line(value.string());
  else if constexpr (kIsText<T>)
    return one_line(value);
  else
    return value;
}

}  // namespace detail

// To stdout: the answer. `print_json` has escaped everything already.
void print_text(std::string_view text);
void print_json(std::string_view document);  // with a line break behind it
// Bytes as they are where stdout is no terminal, else as print_text.
void print_file(std::string_view content);

template <class... Args>
void print(fmt::format_string<detail::Shown<Args>...> format, const Args&... args) {
  print_text(fmt::vformat(format, fmt::make_format_args(detail::shown(args)...)));
}

// To stderr: "tenscope: " and the text in one line, broken at words where the terminal is narrow.
void warn_text(std::string_view text);

template <class... Args>
void warn(fmt::format_string<detail::Shown<Args>...> format, const Args&... args) {
  warn_text(fmt::vformat(format, fmt::make_format_args(detail::shown(args)...)));
}

// What stdout can do: colours pass, and lines are broken at words where they are wider; 0: any width.
void set_terminal(bool has_color, std::size_t width) noexcept;

// Hands on what was written. Throws Io where it could not be.
void flush_output();

}  // namespace tenscope::cli
