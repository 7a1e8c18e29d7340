#include "format/tensorboard.hpp"

#include <bit>
#include <cstddef>

#include "format/crc32c.hpp"

// Overview: a TFRecord is the length of its data (8 bytes), a checksum of these, the data, a checksum of it. The data
// is a message of Protocol Buffers, whose numbers of fields stand in tensorboard/compat/proto/event.proto and
// summary.proto.
namespace tenscope {
namespace {

template <class Word>
void add_bytes_of(std::string& out, Word word) {  // the lowest first
  for (std::size_t i = 0; i < sizeof word; ++i) out += static_cast<char>(static_cast<unsigned char>(word >> (8 * i)));
}

// A message of Protocol Buffers, field by field.
class Message {
 public:
  Message& integer(unsigned field, std::int64_t value) {
    key(field, kVarint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(unsigned field, double value) {
    key(field, kEightBytes);
    add_bytes_of(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& single(unsigned field, float value) {
    key(field, kFourBytes);
    add_bytes_of(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& text(unsigned field, std::string_view value) {  // or a message
    key(field, kSized);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& reals(unsigned field, std::span<const double> values) {
    key(field, kSized);
    varint(values.size() * sizeof(double));
    for (const double value : values) add_bytes_of(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  std::string_view bytes() const noexcept { return bytes_; }

 private:
  enum Wire : std::uint8_t { kVarint = 0, kEightBytes = 1, kSized = 2, kFourBytes = 5 };

  void key(unsigned field, Wire wire) { varint(field << 3 | wire); }
  void varint(std::uint64_t value) {
    for (; value > 0x7f; value >>= 7) bytes_ += static_cast<char>(static_cast<unsigned char>(value | 0x80));
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

std::uint32_t masked_crc_of(std::string_view bytes) noexcept {
  const std::uint32_t crc = crc32c_of(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace

TensorBoardFile::TensorBoardFile(const std::filesystem::path& path, double time) : file_(path) {
  write_record(Message().real(1, time).text(3, "brain.Event:2").bytes());
}

void TensorBoardFile::add_scalar(std::string_view tag, std::int64_t step, double time, double value) {
  add_value(tag, step, time, Message().single(2, static_cast<float>(value)).bytes());
}

void TensorBoardFile::add_histogram(std::string_view tag, std::int64_t step, double time,
                                    const TensorBoardHistogram& histogram) {
  double count = 0;
  for (const double one : histogram.counts) count += one;
  Message message;
  message.real(1, histogram.min).real(2, histogram.max).real(3, count);
  message.real(4, histogram.sum).real(5, histogram.sum_of_squares);
  message.reals(6, histogram.limits).reals(7, histogram.counts);
  add_value(tag, step, time, Message().text(5, message.bytes()).bytes());
}

void TensorBoardFile::add_value(std::string_view tag, std::int64_t step, double time, std::string_view fields) {
  const std::string value = std::string(Message().text(1, tag).bytes()).append(fields);
  const Message summary = Message().text(1, value);
  write_record(Message().real(1, time).integer(2, step).text(5, summary.bytes()).bytes());
}

void TensorBoardFile::write_record(std::string_view message) {
  std::string record;
  add_bytes_of(record, static_cast<std::uint64_t>(message.size()));
  add_bytes_of(record, masked_crc_of(record));
  record += message;
  add_bytes_of(record, masked_crc_of(message));
  file_.write(record);
}

}  // namespace tenscope
