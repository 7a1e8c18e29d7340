#include "viewer/tensor_answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <vector>

#include "core/json_writer.hpp"
#include "kernels/compare.hpp"
#include "kernels/profile.hpp"
#include "kernels/tile.hpp"
#include "kernels/value_histogram.hpp"
#include "tenscope/error.hpp"
#include "viewer/picture.hpp"
#include "viewer/requested_look.hpp"

static_assert(std::endian::native == std::endian::little, "planes are sent as they lie in memory");

namespace tenscope::viewer {
namespace {

constexpr std::int64_t kDefaultTileSide = 512;
constexpr std::int64_t kLargestTileSide = 4096;

std::int64_t tile_side(const Parameters& parameters, std::string_view name) {
  const std::int64_t side = parameters.integer(name, kDefaultTileSide);
  if (side < 1 || side > kLargestTileSide) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("'{}' lies between 1 and {}, and is {}", name, kLargestTileSide, side));
  }
  return side;
}

void write_range(JsonWriter& json, std::string_view name, std::pair<std::int64_t, std::int64_t> range) {
  json.key(name).begin_array().number(range.first).number(range.second).end_array();
}

template <class T>
void write_numbers(JsonWriter& json, std::string_view name, const std::vector<T>& numbers) {
  json.key(name).begin_array();
  for (const T& number : numbers) {
    if constexpr (std::is_same_v<T, double>)
      write_number(json, number);
    else
      json.number(number);
  }
  json.end_array();
}

void write_scale(JsonWriter& json, const kernels::ValueScale& scale) {
  json.key("scale").begin_object();
  for (const auto& [name, value] :
       {std::pair{"min", scale.min}, {"max", scale.max}, {"abs", scale.abs}, {"p999", scale.p999}}) {
    json.key(name);
    write_number(json, value);
  }
  json.key("nan").number(scale.nan).key("pos_inf").number(scale.pos_inf);
  json.key("neg_inf").number(scale.neg_inf).key("zero").number(scale.zero).end_object();
}

// Appends a plane of rows x cols, turned where the picture is. In squares that fit the first-level cache.
template <class T>
void append_plane(std::string& body, const std::vector<T>& plane, std::int64_t rows, std::int64_t cols,
                  bool is_turned) {
  constexpr std::int64_t kSquare = 32;
  if (plane.empty()) return;  // one that this tile does not have
  const std::size_t start = body.size();
  body.resize(start + plane.size() * sizeof(T));
  if (!is_turned) {
    std::memcpy(body.data() + start, plane.data(), plane.size() * sizeof(T));
    return;
  }
  std::vector<T> turned(plane.size());
  for (std::int64_t top = 0; top < rows; top += kSquare) {
    for (std::int64_t left = 0; left < cols; left += kSquare) {
      for (std::int64_t col = left; col < std::min(cols, left + kSquare); ++col) {
        for (std::int64_t row = top; row < std::min(rows, top + kSquare); ++row)
          turned[static_cast<std::size_t>(col * rows + row)] = plane[static_cast<std::size_t>(row * cols + col)];
      }
    }
  }
  std::memcpy(body.data() + start, turned.data(), turned.size() * sizeof(T));
}

void write_census(JsonWriter& json, const kernels::ValueCensus& census, const std::vector<std::int64_t>& counts) {
  write_numbers(json, "counts", counts);
  json.key("nan").number(census.nan).key("pos_inf").number(census.pos_inf).key("neg_inf").number(census.neg_inf);
  json.key("zero").number(census.zero).key("subnormal").number(census.subnormal);
}

}  // namespace

Answer tile_answer(const TensorPair& pair, const Parameters& parameters) {
  const Of of = requested_of(parameters);
  const Picture picture(pair.a, parameters);
  const kernels::Look look = requested_look(pair, of, picture);
  const auto rows = parameters.range("rows", picture.rows()), cols = parameters.range("cols", picture.cols());
  const bool is_turned = picture.is_turned();
  const auto& down = is_turned ? cols : rows;
  const auto& along = is_turned ? rows : cols;
  const std::int64_t h = tile_side(parameters, "h"), w = tile_side(parameters, "w");
  const bool has_scale = parameters.text("scale", "1") != "0";
  kernels::ValueScale scale;
  const kernels::Tile tile = kernels::make_tile(look,
                                                {.cols = picture.matrix_cols(),
                                                 .row_begin = down.first,
                                                 .row_end = down.second,
                                                 .col_begin = along.first,
                                                 .col_end = along.second,
                                                 .height = is_turned ? w : h,
                                                 .width = is_turned ? h : w},
                                                has_scale ? &scale : nullptr);

  std::string header;
  JsonWriter json(header);
  json.begin_object();
  write_range(json, "rows", rows);
  write_range(json, "cols", cols);
  json.key("of_rows").number(picture.rows()).key("of_cols").number(picture.cols());
  json.key("height").number(is_turned ? tile.width : tile.height);
  json.key("width").number(is_turned ? tile.height : tile.width);
  json.key("exact").boolean(tile.is_exact).key("planes").begin_array();
  if (tile.is_exact)
    json.text("value");
  else
    json.text("min").text("max").text("mean");
  json.text("flags").end_array();
  json.key("axes").begin_array().number(picture.axes()[0]).number(picture.axes()[1]).end_array();
  json.key("shape").begin_array();
  for (const std::int64_t size : pair.a.shape) json.number(size);
  json.end_array();
  json.key("slice").text(picture.slice());
  json.key("dtype").text(to_string(of == Of::B ? pair.b->dtype : pair.a.dtype));
  if (has_scale) write_scale(json, scale);
  json.end_object();
  header.resize((header.size() + 7) / 8 * 8, ' ');

  Answer answer{.type = "application/octet-stream"};
  const auto length = static_cast<std::uint32_t>(header.size());
  answer.body.reserve(8 + header.size() + tile.flags.size() * 13);
  answer.body = "TST1";
  answer.body.append(reinterpret_cast<const char*>(&length), sizeof length);
  answer.body += header;
  for (const auto* plane : {&tile.value, &tile.min, &tile.max, &tile.mean})
    append_plane(answer.body, *plane, tile.height, tile.width, is_turned);
  append_plane(answer.body, tile.flags, tile.height, tile.width, is_turned);
  return answer;
}

Answer tolerance_answer(const TensorPair& pair, const Parameters& parameters) {
  const kernels::Tolerance tolerance = requested_tolerance(parameters);
  const kernels::ElementDiff diff =
      kernels::diff(partner_of(pair), pair.a, {.tolerance = tolerance, .equal_nan = true});
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("mismatches").number(diff.mismatches).key("count").number(diff.count);
  const std::pair<const char*, double> measures[] = {{"max_abs", diff.max_abs},
                                                     {"max_rel", diff.max_rel},
                                                     {"relative_l2", diff.relative_l2},
                                                     {"cosine", diff.cosine},
                                                     {"mean_abs", diff.mean_abs}};
  for (const auto& [name, value] : measures) {
    json.key(name);
    write_number(json, value);
  }
  json.key("max_ulps");
  if (diff.has_ulps)
    json.number(diff.max_ulps);
  else
    json.null();
  json.end_object();
  return json_answer(std::move(body));
}

Answer profile_answer(const TensorPair& pair, const Parameters& parameters) {
  const kernels::Look look = requested_look(pair, requested_of(parameters));
  const std::int64_t axis = parameters.integer("axis"), rank = static_cast<std::int64_t>(pair.a.shape.size());
  if (axis < 0 || axis >= rank) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("'axis' is {}, and the tensor has {} {}", axis, rank, rank == 1 ? "axis" : "axes"));
  }
  const kernels::Profile profile =
      kernels::make_profile(look, {pair.a.shape.data(), pair.a.shape.size()}, static_cast<std::size_t>(axis));
  std::string body;
  JsonWriter json(body);
  json.begin_object().key("size").number(profile.size).key("bin").number(profile.bin_width);
  write_numbers(json, "min", profile.min);
  write_numbers(json, "max", profile.max);
  write_numbers(json, "mean", profile.mean);
  write_numbers(json, "l2", profile.l2);
  write_numbers(json, "bad", profile.bad);
  if (look.is_pair())
    write_numbers(json, "differing", profile.nonzero);
  else
    json.key("differing").null();
  json.end_object();
  return json_answer(std::move(body));
}

Answer histogram_answer(const TensorPair& pair, const Parameters& parameters) {
  const Of of = requested_of(parameters);
  const kernels::Look look = requested_look(pair, of);
  std::vector<kernels::ValueCensus> censuses{kernels::take_census(look)};
  // The two of a pair are laid over each other: they have the same bins.
  const bool has_other = (of == Of::A || of == Of::B) && pair.b && pair.b->data != pair.a.data;
  if (has_other) censuses.push_back(kernels::take_census(kernels::Look(of == Of::A ? *pair.b : pair.a)));
  const kernels::HistogramEdges edges = kernels::choose_edges(censuses);
  const kernels::ValueCensus& census = censuses.front();
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  write_numbers(json, "edges", edges.edges);
  write_census(json, census, kernels::count_bins(look, census, edges));
  json.end_object();
  return json_answer(std::move(body));
}

Answer histograms_answer(std::span<const HistogramStep> steps, std::int64_t left_out) {
  std::vector<kernels::ValueCensus> censuses;
  for (const HistogramStep& step : steps) {
    censuses.push_back(kernels::take_census(kernels::Look(step.tensors.a)));
    if (step.tensors.b) censuses.push_back(kernels::take_census(kernels::Look(*step.tensors.b)));
  }
  const kernels::HistogramEdges edges = kernels::choose_edges(censuses);
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  write_numbers(json, "edges", edges.edges);
  json.key("steps").begin_array();
  auto census = censuses.begin();
  const auto write_counts = [&](const TensorView& view) {
    write_census(json, *census, kernels::count_bins(kernels::Look(view), *census, edges));
    ++census;
  };
  for (const HistogramStep& step : steps) {
    json.begin_object().key("step").number(step.step).key("event").number(step.event);
    write_counts(step.tensors.a);
    json.key("b");
    if (step.tensors.b) {
      json.begin_object();
      write_counts(*step.tensors.b);
      json.end_object();
    } else {
      json.null();
    }
    json.end_object();
  }
  json.end_array().key("left_out").number(left_out).end_object();
  return json_answer(std::move(body));
}

}  // namespace tenscope::viewer
