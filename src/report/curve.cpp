#include "report/curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "report/layout.hpp"

namespace tenscope::report {
namespace {

// A field of dots, two across and four down in each character; the tone of a character is that of its last dot.
class Canvas {
 public:
  Canvas(std::size_t columns, std::size_t rows) : columns_(columns), rows_(rows), cells_(columns * rows) {}

  void dot(std::int64_t x, std::int64_t y, Tone tone) {
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    constexpr std::array<std::array<std::uint8_t, 2>, 4> kBits{
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    Place& place = at(x / 2, y / 4);
    place.bits |= kBits[static_cast<std::size_t>(y % 4)][static_cast<std::size_t>(x % 2)];
    place.tone = tone;
  }

  void line(std::int64_t x0, std::int64_t y0, std::int64_t x1, std::int64_t y1, Tone tone) {
    const std::int64_t steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), std::int64_t{1}});
    for (std::int64_t i = 0; i <= steps; ++i)
      dot(x0 + std::llround(static_cast<double>((x1 - x0) * i) / static_cast<double>(steps)),
          y0 + std::llround(static_cast<double>((y1 - y0) * i) / static_cast<double>(steps)), tone);
  }

  void cross(std::int64_t x) {
    at(std::clamp<std::int64_t>(x, 0, width() - 1) / 2, static_cast<std::int64_t>(rows_) - 1).is_bad = true;
  }

  std::string row(std::size_t number, bool is_utf8, bool color) const {
    std::string text;
    for (std::size_t column = 0; column < columns_; ++column) {
      const Place& place = cells_[number * columns_ + column];
      if (place.is_bad)
        text += toned(is_utf8 ? "×" : "x", kBad, color);
      else if (place.bits == 0)
        text += ' ';
      else
        text += toned(is_utf8 ? braille(place.bits) : "*", place.tone, color);
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }

  std::int64_t width() const { return static_cast<std::int64_t>(columns_) * 2; }
  std::int64_t height() const { return static_cast<std::int64_t>(rows_) * 4; }

 private:
  struct Place {
    std::uint8_t bits = 0;
    bool is_bad = false;
    Tone tone = Tone::Plain;
  };

  static std::string braille(std::uint8_t bits) {  // U+2800 and the bits of its dots
    return {static_cast<char>(0xE2), static_cast<char>(0xA0 | (bits >> 6)), static_cast<char>(0x80 | (bits & 0x3F))};
  }

  Place& at(std::int64_t column, std::int64_t row) {
    return cells_[static_cast<std::size_t>(row) * columns_ + static_cast<std::size_t>(column)];
  }

  std::size_t columns_, rows_;
  std::vector<Place> cells_;
};

std::string spaces(std::size_t count) { return std::string(count, ' '); }

}  // namespace

std::string tick_text(double value) { return fmt::format("{:.4g}", value); }

std::vector<double> places_of(const Series& series) {
  std::map<std::int64_t, std::size_t> counts, seen;
  for (const Series::Point& point : series.points) ++counts[point.step];
  std::vector<double> places;
  for (const Series::Point& point : series.points)
    places.push_back(static_cast<double>(point.step) +
                     static_cast<double>(seen[point.step]++) / static_cast<double>(counts[point.step]));
  return places;
}

std::vector<double> round_ticks(double least, double most, std::size_t wished, bool is_log) {
  std::vector<double> ticks;
  if (!(most > least) || wished == 0) return {least};
  if (is_log) {
    const double first = std::ceil(std::log10(least) - 1e-9), last = std::floor(std::log10(most) + 1e-9);
    const double each = std::max(1.0, std::ceil((last - first) / static_cast<double>(wished)));
    for (double power = first; power <= last; power += each) ticks.push_back(std::pow(10.0, power));
    if (ticks.size() > 1) return ticks;
    ticks.clear();
  }
  const double rough = (most - least) / static_cast<double>(wished);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double each = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (each = factor * power; each >= rough * 0.999) break;
  if (!std::isfinite(each) || each <= 0) return {least, most};
  const double first = std::ceil(least / each - 1e-9);
  for (double i = 0; (first + i) * each <= most + each * 1e-9; ++i) ticks.push_back((first + i) * each + 0.0);
  return ticks;
}

std::string curve_text(const std::vector<ToneSeries>& all, const CurveOptions& options) {
  Extent values, steps;
  const auto is_drawn = [&](double value) { return std::isfinite(value) && (!options.is_log || value > 0); };
  for (const auto& [series, tone] : all) {
    const std::vector<double> places = places_of(*series);
    for (std::size_t i = 0; i < places.size(); ++i) {
      steps.add(places[i]);
      if (is_drawn(series->points[i].value)) values.add(series->points[i].value);
    }
  }
  if (values.is_empty) return "";
  const auto scaled = [&](double value) { return options.is_log ? std::log10(value) : value; };
  double low = scaled(values.least), high = scaled(values.most);
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  std::vector<std::string> labels(options.height);
  const bool is_constant = values.most == values.least;
  labels.front() = is_constant ? "" : tick_text(values.most);
  labels.back() = is_constant ? "" : tick_text(values.least);
  if (options.height >= 7 || is_constant) {
    const double middle = (low + high) / 2;
    labels[options.height / 2] = tick_text(is_constant ? values.most : options.is_log ? std::pow(10, middle) : middle);
  }
  std::size_t margin = 0;
  for (const std::string& label : labels) margin = std::max(margin, label.size());
  const std::size_t columns = options.width > margin + 12 ? options.width - margin - 3 : 10;
  Canvas canvas(columns, options.height);
  const double range = high / 2 - low / 2, length = steps.most - steps.least;
  const auto x_of = [&](double place) {
    const double share = length > 0 ? (place - steps.least) / length : 0.5;
    return std::llround(share * static_cast<double>(canvas.width() - 1));
  };
  const auto y_of = [&](double value) {
    const double share = (scaled(value) / 2 - low / 2) / range;
    return std::llround((1 - share) * static_cast<double>(canvas.height() - 1));
  };
  for (const auto& [series, tone] : all) {
    const std::vector<double> places = places_of(*series);
    bool is_going_on = false;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const double value = series->points[i].value;
      if (!is_drawn(value)) {
        if (!std::isfinite(value)) canvas.cross(x_of(places[i]));
        is_going_on = false;
        continue;
      }
      if (is_going_on)
        canvas.line(x_of(places[i - 1]), y_of(series->points[i - 1].value), x_of(places[i]), y_of(value), tone);
      else
        canvas.dot(x_of(places[i]), y_of(value), tone);
      is_going_on = true;
    }
  }
  std::string text;
  const std::string_view bar = options.is_utf8 ? "┤" : "|", wall = options.is_utf8 ? "│" : "|";
  for (std::size_t row = 0; row < options.height; ++row) {
    const std::string label = spaces(margin - labels[row].size()) + labels[row];
    text += fmt::format("{} {}{}\n", toned(label, kFaint, options.color),
                        toned(labels[row].empty() ? wall : bar, kFaint, options.color),
                        canvas.row(row, options.is_utf8, options.color));
  }
  std::string floor(options.is_utf8 ? "└" : "+");
  for (std::size_t i = 0; i < columns; ++i) floor += options.is_utf8 ? "─" : "-";
  text += spaces(margin + 1) + toned(floor, kFaint, options.color) + "\n";
  const std::string first = fmt::format("step {}", static_cast<std::int64_t>(steps.least));
  const std::string last = fmt::format("{}", static_cast<std::int64_t>(steps.most));
  std::string below = spaces(margin + 2) + first;
  if (length > 0 && first.size() + last.size() < columns) below += spaces(columns - first.size() - last.size()) + last;
  return text + toned(below, kFaint, options.color) + "\n";
}

}  // namespace tenscope::report
