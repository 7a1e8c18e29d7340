#include "cli/export_tensorboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "cli/progress.hpp"
#include "format/tensorboard.hpp"
#include "report/histogram.hpp"
#include "report/series.hpp"
#include "tenscope/error.hpp"

// Overview: what becomes a chart, so that nobody drowns in them. Numbers and tensors of one element are scalars under
// their own name. Of other tensors there is a scalar for each statistic asked for, `std/<name>`, so that a page has a
// section for each statistic, and a histogram where the bytes were kept. A tensor that comes once is no curve, and has
// a histogram only. The axis is the step; of what comes several times, in one step only, it is the call.

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kBins = 30;  // as TensorBoard's own writer makes

struct Point {
  std::int64_t step = 0;  // on the axis
  EventId id = 0;
  std::string tag;
};

bool is_value(const Reader& reader, EventId id) {
  return reader.kind(id) == EventKind::Value || reader.kind(id) == EventKind::Change;
}

double seconds(std::int64_t time_ns) { return static_cast<double>(time_ns) / 1e9; }

// The events of one writer, in the order of the axis: TensorBoard drops points when an axis goes back.
std::vector<Point> points_of(const Reader& reader, std::span<const EventId> events) {
  struct Seen {
    std::set<std::int64_t> steps;
    bool is_repeated = false;
  };
  std::unordered_map<std::string_view, Seen> names;
  for (const EventId id : events) {
    Seen& seen = names[reader.name(id)];
    seen.steps.insert(reader.step(id));
    seen.is_repeated |= reader.call(id) > 0;
  }
  std::vector<Point> points;
  for (const EventId id : events) {
    const std::string_view name = reader.name(id);
    const std::int64_t step = reader.step(id), call = reader.call(id);
    const Seen& seen = names[name];
    if (seen.is_repeated && seen.steps.size() == 1)
      points.push_back({call, id, std::string(name)});
    else
      points.push_back({step, id, call > 0 ? fmt::format("{}#{}", name, call) : std::string(name)});
  }
  std::ranges::stable_sort(points, {}, &Point::step);
  return points;
}

class WriterExport {
 public:
  WriterExport(const Reader& reader, const fs::path& path, double time, const TensorBoardOptions& options,
               TensorBoardExport& told)
      : reader_(reader), file_(path, time), options_(options), told_(told) {}

  void write(const std::vector<Point>& points, Progress& progress) {
    for (const Point& point : points) ++occurrences_[point.tag];
    for (std::size_t i = 0; i < points.size(); ++i) {
      add(points[i]);
      progress.show(static_cast<double>(i + 1) / static_cast<double>(points.size()), points[i].tag);
    }
    file_.commit();
    told_.scalars.insert(told_.scalars.end(), scalars_.begin(), scalars_.end());
    told_.histograms.insert(told_.histograms.end(), histograms_.begin(), histograms_.end());
  }

 private:
  void add(const Point& point) {
    const Event event = reader_.event(point.id);
    if (const auto number = report::number_of(event.value)) {
      add_scalar(point.tag, point, event, *number);
    } else if (const auto* big = std::get_if<BigInt>(&event.value)) {
      add_scalar(point.tag, point, event, std::strtod(big->digits.c_str(), nullptr));
    } else if (const auto* tensor = std::get_if<TensorRecord>(&event.value)) {
      if (occurrences_[point.tag] > 1) add_statistics(point, event, *tensor);
      if (options_.has_histograms) add_histogram(point, event, *tensor);
    } else {
      ++told_.left_out["it is text or None"];
    }
  }

  void add_statistics(const Point& point, const Event& event, const TensorRecord& tensor) {
    for (const std::string& word : options_.statistics) {
      const auto number = report::number_of(event.value, *report::parse_statistic(word));
      if (number && !std::isnan(*number)) add_scalar(word + "/" + point.tag, point, event, *number);
    }
    const Stats& stats = tensor.stats;
    const std::int64_t bad = stats.nan + stats.pos_inf + stats.neg_inf;
    if (bad > 0 || scalars_.contains("nonfinite/" + point.tag))
      add_scalar("nonfinite/" + point.tag, point, event, static_cast<double>(bad));
  }

  void add_scalar(const std::string& tag, const Point& point, const Event& event, double value) {
    file_.add_scalar(tag, point.step, seconds(event.time_ns), value);
    scalars_.insert(tag);
    ++told_.points;
  }

  void add_histogram(const Point& point, const Event& event, const TensorRecord& tensor) {
    if (tensor.stats.count == 0 || !std::isfinite(tensor.stats.min)) return;  // without a finite element
    if (!reader_.has_bytes(point.id, tensor)) {
      ++told_.left_out["the bytes of a tensor were not kept: it has no histogram"];
      return;
    }
    const TensorData data = reader_.tensor(point.id);
    TensorBoardHistogram histogram{.min = tensor.stats.min, .max = tensor.stats.max};
    const Stats& stats = tensor.stats;
    const auto finite = static_cast<double>(stats.count - stats.nan - stats.pos_inf - stats.neg_inf);
    histogram.sum = stats.mean * finite;
    histogram.sum_of_squares = stats.l2 * stats.l2;
    std::vector<double> limits{histogram.max}, counts{finite};  // of a constant: one bin without a width
    if (histogram.min < histogram.max) {
      const report::Histogram bins = report::make_histogram(data.view, kBins);
      limits.assign(bins.edges.begin() + 1, bins.edges.end());
      counts.assign(bins.counts.begin(), bins.counts.end());
    }
    histogram.limits = limits;
    histogram.counts = counts;
    file_.add_histogram(point.tag, point.step, seconds(event.time_ns), histogram);
    histograms_.insert(point.tag);
    ++told_.points;
  }

  const Reader& reader_;
  TensorBoardFile file_;
  const TensorBoardOptions& options_;
  TensorBoardExport& told_;
  std::unordered_map<std::string, std::size_t> occurrences_;
  std::set<std::string> scalars_, histograms_;
};

}  // namespace

TensorBoardExport export_tensorboard(const Reader& reader, std::span<const EventId> events,
                                     const TensorBoardOptions& options, const Output& output) {
  std::vector<std::vector<EventId>> of_writers(reader.writers().size());
  for (const EventId id : events)
    if (is_value(reader, id)) of_writers[reader.writer_index(id)].push_back(id);
  const auto has_any = [](const std::vector<EventId>& ids) { return !ids.empty(); };
  const auto writers = std::ranges::count_if(of_writers, has_any);
  const std::string url = output.url_of(reader.path().string());
  const fs::path run = (url.empty() ? fs::canonical(reader.path()) : fs::path(url)).filename();
  TensorBoardExport told;
  Progress progress(output.progress, "writing");
  for (std::size_t writer = 0; writer < of_writers.size(); ++writer) {
    const std::vector<EventId>& ids = of_writers[writer];
    if (ids.empty()) continue;
    const fs::path folder =
        fs::path(options.folder) / run / (writers > 1 ? fs::path(reader.writers()[writer].folder) : fs::path());
    fs::create_directories(folder);
    const double start = seconds(reader.event(ids.front()).time_ns);
    const fs::path file = folder / fmt::format("events.out.tfevents.{:.0f}.tenscope", std::floor(start));
    WriterExport(reader, file, start, options, told).write(points_of(reader, ids), progress);
    told.files.push_back(file.lexically_normal().string());
  }
  return told;
}

}  // namespace tenscope::cli
