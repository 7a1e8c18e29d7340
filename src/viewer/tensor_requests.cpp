#include "viewer/tensor_requests.hpp"

#include <algorithm>
#include <exception>
#include <vector>

#include "tenscope/error.hpp"
#include "viewer/history.hpp"
#include "viewer/json.hpp"
#include "viewer/listing.hpp"
#include "viewer/lost_pages.hpp"
#include "viewer/tensor_answers.hpp"

namespace tenscope::viewer {
namespace {

// The tensors that an answer is made of. Of a file that is cut short the bytes read as zeros: then nothing is said.
class HeldTensors {
 public:
  TensorView add(const Side& side, EventId id) {
    Held one{&side, id, side.tensor(id)};
    throw_if_gone(one);
    return held_.emplace_back(std::move(one)).data.view;
  }
  void throw_if_gone() const {
    for (const Held& one : held_) throw_if_gone(one);
  }

 private:
  struct Held {
    const Side* side = nullptr;
    EventId id = 0;
    TensorData data;
  };

  static void throw_if_gone(const Held& one) {
    const TensorView& view = one.data.view;
    if (element_count(view.shape) == 0) return;
    const auto item = static_cast<std::int64_t>(item_size(view.dtype));
    std::int64_t low = 0, high = is_c_order(view) ? static_cast<std::int64_t>(size_bytes(view)) : item;
    for (std::size_t axis = 0; axis < view.shape.size() && !is_c_order(view); ++axis) {
      const std::int64_t reach = (view.shape[axis] - 1) * view.strides[axis] * item;
      (reach < 0 ? low : high) += reach;
    }
    const char* const begin = static_cast<const char*>(view.data) + low;
    if (has_lost_pages(begin, static_cast<std::size_t>(high - low)) || one.side->is_cut_short(one.id))
      throw Error(ErrorCode::Corrupt,
                  "the bytes of this tensor are gone: their file was cut short since it was opened");
  }

  std::vector<Held> held_;
};

// Whether a request is about one tensor alone, that of `of`.
bool is_of_one(std::string_view path, const Parameters& parameters, std::string_view of) {
  if ((of != "a" && of != "b") || path == "/api/tolerance" || path == "/api/element") return false;
  const std::string what = path == "/api/find" ? parameters.text("what", "") : "";
  return what != "worst" && what != "differs" && what != "mismatch";
}

TensorPair pair_of(const State& state, std::string_view path, const Parameters& parameters, HeldTensors& held) {
  const std::size_t side = side_of(state, parameters);
  const EventId id = event_of(state, side, parameters);
  const std::string of = parameters.text("of", "a");
  std::optional<EventId> partner;
  if (state.pairs != nullptr) partner = state.pairs->of(side, id).partner;
  if (!partner) return {.a = held.add(*state.sides[side], id), .b = {}};
  const EventId ids[] = {side == 0 ? id : *partner, side == 0 ? *partner : id};
  std::optional<TensorView> views[2];
  std::exception_ptr missing[2];
  for (const std::size_t i : {0, 1}) {
    try {
      views[i] = held.add(*state.sides[i], ids[i]);
    } catch (const Error&) {  // its bytes were not kept: the other's may do
      missing[i] = std::current_exception();
    }
  }
  if (views[0] && views[1]) return {.a = *views[0], .b = views[1]};
  const std::size_t wanted = of == "b" ? 1 : 0;
  if (!views[wanted]) std::rethrow_exception(missing[wanted]);
  if (is_of_one(path, parameters, of)) return {.a = *views[wanted], .b = views[wanted]};
  if (of != "a") std::rethrow_exception(missing[1 - wanted]);
  return {.a = *views[wanted], .b = {}};
}

using TensorRequest = Answer (*)(const TensorPair&, const Parameters&);

struct TensorRoute {
  std::string_view path;
  TensorRequest answer;
};

constexpr TensorRoute kTensorRoutes[] = {
    {"/api/tile", tile_answer},           {"/api/elements", elements_answer},   {"/api/element", element_answer},
    {"/api/find", find_answer},           {"/api/tolerance", tolerance_answer}, {"/api/profile", profile_answer},
    {"/api/histogram", histogram_answer},
};

}  // namespace

std::optional<Answer> tensor_answer(const State& state, std::string_view path, const Parameters& parameters) {
  const auto* const route = std::ranges::find(kTensorRoutes, path, &TensorRoute::path);
  if (route == std::end(kTensorRoutes)) return std::nullopt;
  HeldTensors held;
  const TensorPair pair = pair_of(state, path, parameters, held);
  Answer answer = route->answer(pair, parameters);
  held.throw_if_gone();
  answer.is_final = state.finding != nullptr && !state.is_running();
  return answer;
}

// The same tensor over steps, as many as asked for: spread evenly, the one asked for among them.
Answer histograms_of(const State& state, const Parameters& parameters) {
  const std::size_t side = side_of(state, parameters);
  const Side& own = *state.sides[side];
  const Catalog& catalog = *state.catalogs[side];
  const EventId id = event_of(state, side, parameters);
  const auto most = static_cast<std::size_t>(std::clamp<std::int64_t>(parameters.integer("steps", 64), 1, 512));
  std::vector<EventId> events = over_steps(own, catalog, id);
  std::erase_if(events, [&](EventId other) { return catalog[other].shown != Shown::Tensor; });
  std::vector<EventId> chosen;
  const std::size_t count = std::min(most, events.size());
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(events[i * events.size() / count]);
  HeldTensors held;
  std::vector<HistogramStep> steps;
  for (const EventId event : chosen) {
    std::optional<EventId> partner;
    if (state.pairs != nullptr) partner = state.pairs->of(side, event).partner;
    try {
      const TensorView tensor = held.add(own, event);
      steps.push_back({.step = catalog[event].step, .event = own.number_of(event), .tensors = {tensor, {}}});
      if (partner) steps.back().tensors.b = held.add(*state.sides[1 - side], *partner);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::NotFound) throw;  // its bytes were not kept
    }
  }
  if (steps.empty()) throw Error(ErrorCode::NotFound, "the bytes of this tensor were not kept");
  Answer answer = histograms_answer(steps, static_cast<std::int64_t>(events.size() - steps.size()));
  held.throw_if_gone();
  return answer;
}

}  // namespace tenscope::viewer
