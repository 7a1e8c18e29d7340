// Overview. What a caller does wrong is told by the returned status, whether the run is strict or not: every argument
// is looked at before it is handed on. What goes wrong while recording (a full disk) is the run's affair. A handle is
// never freed, only emptied: a call with one that was closed, also by another thread, finds that out instead of freed
// memory.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "core/dlpack.hpp"
#include "tenscope/error.hpp"
#include "tenscope/run.hpp"
#include "tenscope/tenscope.h"

struct tenscope_run {
  std::optional<tenscope::Run> run;  // until the last call that uses it has ended
  std::string path;
  std::atomic<std::uint64_t> holders{1};  // the caller, until it closes, and the calls that are under way
  std::atomic<bool> is_closed{false};
  std::atomic<std::uint64_t> dropped{0};  // when it was closed
  tenscope_run* next = nullptr;
};

namespace tenscope {
namespace {

static_assert(TENSCOPE_F64 == static_cast<int>(DType::F64) && TENSCOPE_C128 == static_cast<int>(DType::C128));
static_assert(TENSCOPE_C128 == kDTypeCount - 1);

thread_local std::string last_error;

std::atomic<tenscope_run*> all_runs{nullptr};  // so that closed handles are no leaks

void keep(tenscope_run* run) noexcept {
  run->next = all_runs.load();
  while (!all_runs.compare_exchange_weak(run->next, run)) {
  }
}

void let_go(tenscope_run* run) noexcept {
  if (run->holders.fetch_sub(1) == 1) run->run.reset();
}

// A run in use: another thread may close it, but not free it.
class Held {
 public:
  explicit Held(tenscope_run* run) : run_(run) {
    if (run == nullptr) throw Error(ErrorCode::InvalidArgument, "the run is NULL");
    std::uint64_t holders = run->holders.load();
    while (holders > 0 && !run->holders.compare_exchange_weak(holders, holders + 1)) {
    }
    if (holders == 0) throw Error(ErrorCode::InvalidArgument, "the run is closed");
    if (!run->is_closed) return;
    let_go(run);
    throw Error(ErrorCode::InvalidArgument, "the run is closed");
  }
  ~Held() { let_go(run_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Run* operator->() const noexcept { return &*run_->run; }

 private:
  tenscope_run* run_;
};

tenscope_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::Io:
      return TENSCOPE_IO;
    case ErrorCode::Corrupt:
      return TENSCOPE_CORRUPT;
    case ErrorCode::Version:
      return TENSCOPE_VERSION;
    case ErrorCode::InvalidArgument:
      return TENSCOPE_INVALID_ARGUMENT;
    case ErrorCode::NotFound:
      return TENSCOPE_NOT_FOUND;
    case ErrorCode::Unsupported:
      return TENSCOPE_UNSUPPORTED;
  }
  return TENSCOPE_INTERNAL;
}

tenscope_status fail(tenscope_status status, const char* why) noexcept {
  try {
    last_error = why;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

// No exception leaves a function of C.
template <class Action>
tenscope_status guarded(Action&& action) noexcept {
  try {
    action();
    return TENSCOPE_OK;
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::exception& error) {
    return fail(TENSCOPE_INTERNAL, error.what());
  } catch (...) {
    return fail(TENSCOPE_INTERNAL, "unknown error");
  }
}

void require(bool holds, const char* why) {
  if (!holds) throw Error(ErrorCode::InvalidArgument, why);
}

std::string_view text_of(const char* text) noexcept { return text == nullptr ? std::string_view() : text; }

// The caller's struct as this version knows it: one of an older version is shorter, and what it lacks is 0.
template <class Struct>
Struct as_known(const Struct& given, const char* name) {
  if (given.struct_size < sizeof(given.struct_size)) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("{}: struct_size is not set", name));
  }
  Struct known{};
  std::memcpy(static_cast<void*>(&known), &given, std::min(given.struct_size, sizeof(Struct)));
  return known;
}

EventInfo info_of(const tenscope_event* given) {
  require(given != nullptr, "the event is NULL");
  const tenscope_event event = as_known(*given, "tenscope_event");
  require(event.name != nullptr, "the event has no name");
  require(event.inputs != nullptr || event.input_count == 0, "the event's inputs are NULL, but counted");
  if (event.meta != nullptr && *event.meta != '\0') {
    simdjson::dom::parser parser;
    simdjson::dom::object object;
    require(parser.parse(std::string_view(event.meta)).get(object) == simdjson::SUCCESS,
            "the event's meta is not the text of one JSON object");
  }
  EventInfo info;
  info.name = event.name;
  info.site = text_of(event.site);
  info.scope = text_of(event.scope);
  if (event.io != nullptr) info.io = event.io;
  if (event.phase != nullptr) info.phase = event.phase;
  info.root = text_of(event.root);
  info.cls = text_of(event.cls);
  info.meta = text_of(event.meta);
  for (std::size_t i = 0; i < event.input_count; ++i) {
    require(event.inputs[i] != nullptr, "the name of an input of the event is NULL");
    info.inputs.emplace_back(event.inputs[i]);
  }
  return info;
}

// A run that is not strict would count a tensor that cannot be, and say nothing.
TensorView checked(const TensorView& view) {
  validate(view);
  return view;
}

RunOptions options_of(const tenscope_options* given) {
  RunOptions options;
  if (given == nullptr) return options;
  const tenscope_options known = as_known(*given, "tenscope_options");
  require(known.rank >= 0 && known.world_size >= 0, "the rank or the world_size is negative");
  require(known.world_size == 0 || known.rank < known.world_size, "the rank is not below the world_size");
  options.name = text_of(known.name);
  options.rank = known.rank;
  options.world_size = std::max(known.world_size, 1);
  options.join = known.join != 0;
  options.durability = known.disk != 0 ? Durability::Disk : Durability::Process;
  options.keep = known.keep_last != 0 ? Keep::Last : Keep::First;
  options.strict = known.strict != 0;
  options.max_bytes = known.max_bytes;
  return options;
}

template <class Value>
tenscope_status record(tenscope_run* run, const tenscope_event* event, const Value& value) noexcept {
  return guarded([&] {
    const Held held(run);
    const EventInfo info = info_of(event);
    held->record(info, value());
  });
}

}  // namespace
}  // namespace tenscope

using namespace tenscope;

const char* tenscope_version(void) { return TENSCOPE_VERSION_TEXT; }

const char* tenscope_last_error(void) { return last_error.c_str(); }

tenscope_status tenscope_open(const char* base, const tenscope_options* options, tenscope_run** run) {
  return guarded([&] {
    require(base != nullptr && run != nullptr, "a run needs a folder to lie in, and a place for the handle");
    *run = nullptr;
    auto opened = std::make_unique<tenscope_run>();
    opened->run.emplace(base, options_of(options));
    opened->path = opened->run->path().string();
    keep(opened.get());
    *run = opened.release();
  });
}

tenscope_status tenscope_close(tenscope_run* run) {
  return guarded([&] {
    if (run == nullptr) return;
    require(!run->is_closed.exchange(true), "the run is closed already");
    const auto release = [](tenscope_run* closed) {
      closed->dropped = closed->run->dropped();
      let_go(closed);
    };
    const std::unique_ptr<tenscope_run, decltype(release)> owner(run, release);
    run->run->close();
  });
}

tenscope_status tenscope_record_tensor(tenscope_run* run, const tenscope_event* event, const void* data,
                                       tenscope_dtype dtype, int32_t ndim, const int64_t* shape,
                                       const int64_t* strides) {
  return record(run, event, [&] {
    require(dtype >= 0 && dtype < kDTypeCount, "there is no such dtype");
    require(ndim >= 0, "the tensor's number of axes is negative");
    require(ndim == 0 || shape != nullptr, "the tensor's shape is NULL");
    const auto rank = static_cast<std::size_t>(ndim);
    return checked({data, static_cast<DType>(dtype), {shape, rank}, {strides, strides == nullptr ? 0 : rank}, "cpu"});
  });
}

tenscope_status tenscope_record_dlpack(tenscope_run* run, const tenscope_event* event, const void* dl_tensor) {
  return record(run, event, [&] {
    require(dl_tensor != nullptr, "the DLTensor is NULL");
    const auto& tensor = *static_cast<const dlpack::Tensor*>(dl_tensor);
    const auto dtype = dlpack::dtype_of(tensor.dtype);
    if (!dtype) {
      throw Error(ErrorCode::Unsupported,
                  fmt::format("cannot record the DLTensor: type code {}, {} bits, {} lanes is no dtype of tenscope",
                              tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes));
    }
    if (!dlpack::is_on_host(tensor.device)) {
      throw Error(ErrorCode::Unsupported,
                  fmt::format("cannot record the DLTensor: it lies on a device of type {}; copy "
                              "it to the host first",
                              tensor.device.type));
    }
    require(tensor.ndim >= 0, "the DLTensor's number of axes is negative");
    require(tensor.ndim == 0 || tensor.shape != nullptr, "the DLTensor's shape is NULL");
    const auto rank = static_cast<std::size_t>(tensor.ndim);
    const auto* data = static_cast<const char*>(tensor.data);
    return checked({data == nullptr ? nullptr : data + tensor.byte_offset,
                    *dtype,
                    {tensor.shape, rank},
                    {tensor.strides, tensor.strides == nullptr ? 0 : rank},
                    "cpu"});
  });
}

tenscope_status tenscope_record_double(tenscope_run* run, const tenscope_event* event, double value) {
  return record(run, event, [&] { return EventValue(value); });
}

tenscope_status tenscope_record_int(tenscope_run* run, const tenscope_event* event, int64_t value) {
  return record(run, event, [&] { return EventValue(value); });
}

tenscope_status tenscope_record_text(tenscope_run* run, const tenscope_event* event, const char* text) {
  return record(run, event, [&] {
    require(text != nullptr, "the text is NULL");
    return EventValue(std::string(text));
  });
}

tenscope_status tenscope_next_step(tenscope_run* run) {
  return guarded([&] { Held(run)->step(); });
}

tenscope_status tenscope_set_step(tenscope_run* run, int64_t step) {
  return guarded([&] {
    const Held held(run);
    require(step >= 0, "the step is negative");
    held->step(step);
  });
}

tenscope_status tenscope_flush(tenscope_run* run) {
  return guarded([&] { Held(run)->flush(); });
}

const char* tenscope_path(const tenscope_run* run) { return run == nullptr ? "" : run->path.c_str(); }

uint64_t tenscope_dropped(const tenscope_run* run) {
  std::uint64_t count = run == nullptr ? 0 : run->dropped.load();
  if (run == nullptr || run->is_closed) return count;
  guarded([&] { count = Held(const_cast<tenscope_run*>(run))->dropped(); });
  return count;
}
