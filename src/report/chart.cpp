// Overview: charts are laid out once, as lines, crosses and labels on a sheet (Sheet), and written in two languages:
// SVG, and the one of Graphviz, whose positions are given so that it lays out nothing.
#include "report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/printable.hpp"
#include "report/curve.hpp"
#include "report/layout.hpp"

namespace tenscope::report {
namespace {

struct Point {
  double x = 0, y = 0;
};

enum class Anchor { Begin, Middle, End };

struct Line {
  std::vector<Point> points;
  std::string color;
  double width = 1;
  bool is_dashed = false;
};

struct Label {
  Point at;  // its middle in height
  std::string text, color;
  double size = 11;
  Anchor anchor = Anchor::Begin;
  bool is_bold = false;
};

struct Sheet {
  double width = 0, height = 0;
  std::vector<Line> lines;
  std::vector<Label> labels;
};

constexpr double kWidth = 860, kLeft = 76, kRight = 24, kPlotHeight = 220, kTitle = 34, kSteps = 34, kLegendLine = 17;
constexpr const char* kInk = "#1f2328";
constexpr const char* kGrey = "#6e7781";
constexpr const char* kGrid = "#e4e7eb";
constexpr const char* kBadColor = "#cf222e";

// Eight that can be told apart, also by those who do not see red and green; of more curves a ramp from blue to orange.
std::string color_of(std::size_t number, std::size_t count) {
  constexpr std::array<const char*, 8> kColors{"#0969da", "#d1620a", "#1a7f37", "#8250df",
                                               "#9a6700", "#bf3989", "#0b7285", "#57606a"};
  if (count <= kColors.size()) return kColors[number];
  const double share = static_cast<double>(number) / static_cast<double>(count - 1);
  const auto mix = [&](int from, int to) { return from + static_cast<int>(std::lround(share * (to - from))); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0x09, 0xd1), mix(0x69, 0x62), mix(0xda, 0x0a));
}

class Layout {
 public:
  Sheet make(const std::vector<Chart>& charts, const std::string& title) {
    sheet_.width = kWidth;
    top_ = 16;
    label({16, top_ + 8}, title, {.size = 13, .is_bold = true});
    top_ += 24;
    for (const Chart& chart : charts) add(chart);
    sheet_.height = top_;
    return std::move(sheet_);
  }

 private:
  struct Look {
    std::string color = kInk;
    double size = 11;
    Anchor anchor = Anchor::Begin;
    bool is_bold = false;
  };

  void label(Point at, const std::string& text, const Look& look) {
    sheet_.labels.push_back({at, printable(text), look.color, look.size, look.anchor, look.is_bold});
  }

  void add(const Chart& chart) {
    Extent values, steps;
    const auto is_drawn = [&](double value) { return std::isfinite(value) && (!chart.is_log || value > 0); };
    std::size_t colors = 0;
    for (const Chart::Curve& curve : chart.curves) {
      colors += curve.is_compared ? 0 : 1;
      for (const double place : places_of(curve.series)) steps.add(place);
      for (const Series::Point& point : curve.series.points)
        if (is_drawn(point.value)) values.add(point.value);
    }
    label({kLeft, top_ + kTitle / 2}, chart.title, {.size = 12, .is_bold = true});
    top_ += kTitle;
    const double bottom = top_ + kPlotHeight, right = kWidth - kRight;
    const auto scaled = [&](double value) { return chart.is_log ? std::log10(value) : value; };
    double low = values.is_empty ? 0 : scaled(values.least), high = values.is_empty ? 1 : scaled(values.most);
    if (low == high) {
      low -= 0.5;
      high += 0.5;
    }
    const double room = (high - low) * 0.04;
    low -= room;
    high += room;
    if (steps.is_empty) steps.add(0);
    if (steps.most == steps.least) steps.most = steps.least + 1;
    const auto x_of = [&](double place) {
      return kLeft + (place - steps.least) / (steps.most - steps.least) * (right - kLeft);
    };
    const auto y_of = [&](double value) { return bottom - (scaled(value) - low) / (high - low) * kPlotHeight; };
    const auto from_scale = [&](double value) { return chart.is_log ? std::pow(10, value) : value; };
    for (const double tick : round_ticks(from_scale(low), from_scale(high), 5, chart.is_log)) {
      const double y = y_of(tick);
      if (y < top_ - 1 || y > bottom + 1) continue;
      sheet_.lines.push_back({{{kLeft, y}, {right, y}}, kGrid, 1, false});
      label({kLeft - 8, y}, tick_text(tick), {.color = kGrey, .anchor = Anchor::End});
    }
    for (const double tick : round_ticks(steps.least, steps.most, 8, false)) {
      if (tick != std::floor(tick)) continue;
      sheet_.lines.push_back({{{x_of(tick), bottom}, {x_of(tick), bottom + 4}}, kGrey, 1, false});
      label({x_of(tick), bottom + 14}, fmt::format("{:.0f}", tick), {.color = kGrey, .anchor = Anchor::Middle});
    }
    sheet_.lines.push_back({{{kLeft, bottom}, {right, bottom}}, kGrey, 1, false});
    label({right, top_ - kTitle / 2}, chart.is_log ? "over steps, logarithmic" : "over steps",
          {.color = kGrey, .anchor = Anchor::End});
    std::size_t number = 0;
    std::string color = kInk;
    std::vector<std::string> used;
    for (const Chart::Curve& curve : chart.curves) {
      if (!curve.is_compared) color = color_of(number++, colors);
      used.push_back(color);
      const std::vector<double> places = places_of(curve.series);
      Line line{{}, color, 1.6, curve.is_compared};
      const auto end_line = [&] {
        if (line.points.size() == 1) line.points.push_back({line.points[0].x + 1.5, line.points[0].y});
        if (!line.points.empty()) sheet_.lines.push_back(line);
        line.points.clear();
      };
      for (std::size_t i = 0; i < places.size(); ++i) {
        const double value = curve.series.points[i].value;
        if (is_drawn(value)) {
          line.points.push_back({x_of(places[i]), y_of(value)});
          continue;
        }
        end_line();
        if (!std::isfinite(value)) cross({x_of(places[i]), bottom});
      }
      end_line();
    }
    top_ = bottom + kSteps;
    if (chart.curves.size() > 1) legend(chart, used);
    top_ += 12;
  }

  void cross(Point at) {
    constexpr double kArm = 4;
    sheet_.lines.push_back({{{at.x - kArm, at.y - kArm}, {at.x + kArm, at.y + kArm}}, kBadColor, 1.5, false});
    sheet_.lines.push_back({{{at.x - kArm, at.y + kArm}, {at.x + kArm, at.y - kArm}}, kBadColor, 1.5, false});
  }

  // In three columns, at most eight lines of them.
  void legend(const Chart& chart, const std::vector<std::string>& colors) {
    constexpr std::size_t kColumns = 3, kMost = 24;
    const std::size_t shown = std::min(chart.curves.size(), kMost);
    const double column = (kWidth - kLeft - kRight) / kColumns;
    for (std::size_t i = 0; i < shown; ++i) {
      const std::size_t row = i / kColumns;
      const double x = kLeft + static_cast<double>(i % kColumns) * column;
      const double y = top_ + static_cast<double>(row) * kLegendLine;
      sheet_.lines.push_back({{{x, y}, {x + 18, y}}, colors[i], 2, chart.curves[i].is_compared});
      const bool is_rest = i + 1 == shown && shown < chart.curves.size();
      label({x + 24, y},
            is_rest ? fmt::format("… and {} more", chart.curves.size() - shown + 1)
                    : shortened(printable(chart.curves[i].label), 34),
            {.color = kGrey, .size = 10});
    }
    const std::size_t rows = (shown + kColumns - 1) / kColumns;
    top_ += static_cast<double>(rows) * kLegendLine;
  }

  Sheet sheet_;
  double top_ = 0;
};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  }
  return result;
}

std::string dot_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

std::string chart_svg(const std::vector<Chart>& charts, const std::string& title) {
  const Sheet sheet = Layout().make(charts, title);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"system-ui, sans-serif\">\n<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n",
      sheet.width, sheet.height, escaped(printable(title)));
  for (const Line& line : sheet.lines) {
    out += "<polyline points=\"";
    for (const Point& point : line.points) out += fmt::format("{:.2f},{:.2f} ", point.x, point.y);
    out += fmt::format("\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{}/>\n", line.color,
                       line.width, line.is_dashed ? " stroke-dasharray=\"5 3\"" : "");
  }
  for (const Label& label : sheet.labels) {
    constexpr std::array<const char*, 3> kAnchors{"start", "middle", "end"};
    out += fmt::format(
        "<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\" "
        "dominant-baseline=\"central\"{}>{}</text>\n",
        label.at.x, label.at.y, label.size, label.color, kAnchors[static_cast<std::size_t>(label.anchor)],
        label.is_bold ? " font-weight=\"600\"" : "", escaped(label.text));
  }
  return out + "</svg>\n";
}

// Lines are edges between points that cannot be seen, labels are nodes without a border.
std::string chart_dot(const std::vector<Chart>& charts, const std::string& title) {
  const Sheet sheet = Layout().make(charts, title);
  const auto place = [&](Point at) { return fmt::format("{:.2f},{:.2f}", at.x, sheet.height - at.y); };
  std::string out =
      "digraph {\n  graph [bgcolor=\"#ffffff\", pad=0, margin=0, dpi=144];\n"
      "  node [shape=none, label=\"\", width=0, height=0, margin=0, fixedsize=true, fontname=\"sans-serif\"];\n"
      "  edge [arrowhead=none];\n";
  std::size_t number = 0;
  const auto invisible = [&](Point at) {
    out += fmt::format("  n{} [pos=\"{}!\"];\n", number, place(at));
    return number++;
  };
  invisible({0, 0});
  invisible({sheet.width, sheet.height});
  for (const Line& line : sheet.lines) {
    const std::size_t begin = invisible(line.points.front()), end = invisible(line.points.back());
    std::string spline = place(line.points.front());
    for (std::size_t i = 1; i < line.points.size(); ++i)  // a Bézier curve that is straight
      spline += fmt::format(" {} {} {}", place(line.points[i - 1]), place(line.points[i]), place(line.points[i]));
    out += fmt::format("  n{} -> n{} [pos=\"{}\", color=\"{}\", penwidth={}{}];\n", begin, end, spline, line.color,
                       line.width, line.is_dashed ? ", style=dashed" : "");
  }
  for (const Label& label : sheet.labels) {
    // A box that holds the text, which stands at one of its ends: up to the edge of the sheet, and not beyond.
    const double room = label.anchor == Anchor::Begin ? sheet.width - label.at.x
                        : label.anchor == Anchor::End ? label.at.x
                                                      : 2 * std::min({label.at.x, sheet.width - label.at.x, 40.0});
    const double shift = label.anchor == Anchor::Begin ? room / 2 : label.anchor == Anchor::End ? -room / 2 : 0;
    std::string text = dot_quoted(label.text);
    if (label.anchor != Anchor::Middle) text.insert(text.size() - 1, label.anchor == Anchor::Begin ? "\\l" : "\\r");
    out += fmt::format("  n{} [pos=\"{}!\", label={}, width={:.3f}, height=0.2, fontsize={}, fontcolor=\"{}\"{}];\n",
                       number++, place({label.at.x + shift, label.at.y}), text, room / 72, label.size, label.color,
                       label.is_bold ? ", fontname=\"sans-serif bold\"" : "");
  }
  return out + "}\n";
}

}  // namespace tenscope::report
