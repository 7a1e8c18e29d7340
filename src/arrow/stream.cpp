#include "arrow/stream.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "tenscope/error.hpp"

// Overview: what an exported structure points to lies in a Holder of its own, private_data, which the structure's
// release deletes. A holder releases the children that nobody has moved elsewhere.
namespace tenscope::arrow {
namespace {

template <class Struct>
void release_if_held(Struct& held) {
  if (held.release != nullptr) held.release(&held);
}

template <class Struct>
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (const auto& child : children_) release_if_held(*child);
  }
  void add(Struct child) {
    children_.push_back(std::make_unique<Struct>(child));
    pointers_.push_back(children_.back().get());
  }
  Struct** pointers() { return pointers_.data(); }
  std::int64_t size() const { return static_cast<std::int64_t>(pointers_.size()); }

 private:
  std::vector<std::unique_ptr<Struct>> children_;
  std::vector<Struct*> pointers_;
};

template <class Struct, class Holder>
void release(Struct* held) {
  delete static_cast<Holder*>(held->private_data);
  held->release = nullptr;
}

struct SchemaHolder {
  std::string name;
  Children<ArrowSchema> children, dictionary;
};

ArrowSchema make_schema(const char* format, std::string_view name, bool is_nullable,
                        std::unique_ptr<SchemaHolder> holder = std::make_unique<SchemaHolder>()) {
  holder->name = name;
  ArrowSchema schema{};
  schema.format = format;
  schema.name = holder->name.c_str();
  schema.flags = is_nullable ? ARROW_FLAG_NULLABLE : 0;
  schema.n_children = holder->children.size();
  schema.children = holder->children.pointers();
  schema.dictionary = holder->dictionary.size() > 0 ? *holder->dictionary.pointers() : nullptr;
  schema.release = release<ArrowSchema, SchemaHolder>;
  schema.private_data = holder.release();
  return schema;
}

const char* format_of(Type type, TextLayout layout) {
  switch (type) {
    case Type::Int32:
      return "i";
    case Type::Int64:
      return "l";
    case Type::Double:
      return "g";
    case Type::Bool:
      return "b";
    case Type::Time:
      return "tsn:UTC";
    case Type::Shape:
      return "+l";
    case Type::Text:
      break;
  }
  return layout == TextLayout::Coded ? "i" : layout == TextLayout::Large ? "U" : "u";
}

ArrowSchema field_schema(const EventField& field, TextLayout layout) {
  auto holder = std::make_unique<SchemaHolder>();
  if (field.type == Type::Shape) holder->children.add(make_schema("l", "item", false));
  if (field.type == Type::Text && layout == TextLayout::Coded) holder->dictionary.add(make_schema("u", "", false));
  return make_schema(format_of(field.type, layout), field.name, field.is_nullable, std::move(holder));
}

struct ArrayHolder {
  std::shared_ptr<const void> owner;  // of what the buffers point to
  std::vector<const void*> buffers;
  Children<ArrowArray> children, dictionary;
};

ArrowArray make_array(std::size_t length, std::int64_t null_count, std::unique_ptr<ArrayHolder> holder) {
  ArrowArray array{};
  array.length = static_cast<std::int64_t>(length);
  array.null_count = null_count;
  array.n_buffers = static_cast<std::int64_t>(holder->buffers.size());
  array.buffers = holder->buffers.data();
  array.n_children = holder->children.size();
  array.children = holder->children.pointers();
  array.dictionary = holder->dictionary.size() > 0 ? *holder->dictionary.pointers() : nullptr;
  array.release = release<ArrowArray, ArrayHolder>;
  array.private_data = holder.release();
  return array;
}

// An empty vector has no memory, but a buffer that is null would be one that is left out.
template <class Values>
const void* buffer_of(const Values& values) {
  alignas(8) static constexpr std::array<std::byte, 8> kNothing{};
  return values.empty() ? static_cast<const void*>(kNothing.data()) : values.data();
}

// Of `rows` rows, without the first buffer, which tells what is null.
class AddBuffers {
 public:
  AddBuffers(ArrayHolder& holder) : holder_(holder) {}

  template <class Number>
  void operator()(const std::vector<Number>& values) const {
    holder_.buffers.push_back(buffer_of(values));
  }
  void operator()(const Bits& bits) const { holder_.buffers.push_back(buffer_of(bits.bytes)); }
  template <class Offset>
  void operator()(const Texts<Offset>& texts) const {
    holder_.buffers.insert(holder_.buffers.end(), {buffer_of(texts.ends), buffer_of(texts.bytes)});
  }
  void operator()(const Codes& codes) const {
    holder_.buffers.push_back(buffer_of(codes.codes));
    holder_.dictionary.add(inner_array(codes.words.size(), codes.words));
  }
  void operator()(const Shapes& shapes) const {
    holder_.buffers.push_back(buffer_of(shapes.ends));
    holder_.children.add(inner_array(shapes.sizes.size(), shapes.sizes));
  }

 private:
  template <class Values>
  ArrowArray inner_array(std::size_t length, const Values& values) const {
    auto inner = std::make_unique<ArrayHolder>();
    inner->owner = holder_.owner;
    inner->buffers.push_back(nullptr);
    AddBuffers add(*inner);
    add(values);
    return make_array(length, 0, std::move(inner));
  }

  ArrayHolder& holder_;
};

ArrowArray column_array(std::size_t rows, Column&& values) {
  const auto column = std::make_shared<const Column>(std::move(values));
  auto holder = std::make_unique<ArrayHolder>();
  holder->owner = column;
  holder->buffers.push_back(column->null_count() > 0 ? column->valid().bytes.data() : nullptr);
  std::visit(AddBuffers(*holder), column->data());
  return make_array(rows, column->null_count(), std::move(holder));
}

ArrowArray batch_array(Batch&& batch) {
  auto holder = std::make_unique<ArrayHolder>();
  holder->buffers.push_back(nullptr);
  for (Column& column : batch.columns) holder->children.add(column_array(batch.rows, std::move(column)));
  return make_array(batch.rows, 0, std::move(holder));
}

// The layouts that a consumer asks for.
Layouts layouts_of(const ArrowSchema& requested) {
  const std::span<const EventField> fields = event_fields();
  const auto refuse = [](std::string_view why) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("cannot give events in the requested schema: {}", why));
  };
  if (requested.format == nullptr || std::string_view(requested.format) != "+s") refuse("it is none of a table");
  if (requested.n_children != static_cast<std::int64_t>(fields.size()))
    refuse(fmt::format("it has {} columns, and events have {}", requested.n_children, fields.size()));
  Layouts layouts;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const ArrowSchema& child = *requested.children[i];
    const std::string_view name = child.name != nullptr ? child.name : "";
    if (name != fields[i].name) refuse(fmt::format("its column {} is '{}' instead of '{}'", i, name, fields[i].name));
    const bool is_large = child.format != nullptr && std::string_view(child.format) == "U";
    layouts.push_back(child.dictionary != nullptr ? TextLayout::Coded
                      : is_large                  ? TextLayout::Large
                                                  : TextLayout::Plain);
  }
  return layouts;
}

struct StreamHolder {
  Layouts layouts;
  EventBatches batches;
  std::string error;
};

// What happens behind the C interface: errors become numbers, and the text of the last one.
template <class Work>
int guarded(ArrowArrayStream* stream, Work work) noexcept {
  auto& holder = *static_cast<StreamHolder*>(stream->private_data);
  try {
    work(holder);
    return 0;
  } catch (const Error& error) {
    holder.error = error.what();
    return error.code() == ErrorCode::Unsupported ? ENOTSUP : EIO;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  } catch (const std::exception& error) {
    holder.error = error.what();
    return EIO;
  }
}

}  // namespace

ArrowSchema event_schema(const Layouts& layouts) {
  const std::span<const EventField> fields = event_fields();
  auto holder = std::make_unique<SchemaHolder>();
  for (std::size_t i = 0; i < fields.size(); ++i)
    holder->children.add(field_schema(fields[i], layouts.empty() ? TextLayout::Plain : layouts[i]));
  return make_schema("+s", "", false, std::move(holder));
}

ArrowArrayStream event_stream(std::shared_ptr<const Reader> reader, std::vector<EventId> events,
                              const ArrowSchema* requested) {
  const Layouts layouts = requested != nullptr ? layouts_of(*requested) : Layouts();
  ArrowArrayStream stream{};
  stream.get_schema = [](ArrowArrayStream* self, ArrowSchema* out) {
    return guarded(self, [&](StreamHolder& holder) { *out = event_schema(holder.layouts); });
  };
  stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) {
    return guarded(self, [&](StreamHolder& holder) {
      auto batch = holder.batches.next();
      *out = batch ? batch_array(std::move(*batch)) : ArrowArray{};
    });
  };
  stream.get_last_error = [](ArrowArrayStream* self) -> const char* {
    const std::string& error = static_cast<StreamHolder*>(self->private_data)->error;
    return error.empty() ? nullptr : error.c_str();
  };
  stream.release = release<ArrowArrayStream, StreamHolder>;
  stream.private_data = new StreamHolder{layouts, {std::move(reader), std::move(events), layouts}, {}};
  return stream;
}

}  // namespace tenscope::arrow
