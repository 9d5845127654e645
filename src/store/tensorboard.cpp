#include "store/tensorboard.h"

#include <algorithm>
#include <bit>

#include "io/file_io.h"

namespace quaver {

namespace {

constexpr std::size_t scalars_per_event = 1024;

// Protocol buffers' wire types.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <typename Unsigned>
void put_little_endian(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i));
}

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7U) out += static_cast<char>((value & 0x7FU) | 0x80U);
  out += static_cast<char>(value);
}

void put_key(std::string& out, unsigned field, Wire wire) {
  put_varint(out, field << 3U | static_cast<unsigned>(wire));
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_head(double wall_time) {
  std::string event;
  put_key(event, 1, Wire::fixed64);
  put_little_endian(event, std::bit_cast<std::uint64_t>(wall_time));
  return event;
}

std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xa282ead8U;
}

}  // namespace

TensorboardEvents::TensorboardEvents(Sink sink, double wall_time) : sink_(std::move(sink)) {
  std::string event = event_head(wall_time);
  put_bytes(event, 3, "brain.Event:2");
  frame(event);
}

void TensorboardEvents::write(double wall_time, std::uint64_t step, std::span<const TensorboardScalar> scalars) {
  while (!scalars.empty()) {
    const auto part = scalars.first(std::min(scalars.size(), scalars_per_event));
    scalars = scalars.subspan(part.size());
    std::string summary;
    for (const TensorboardScalar& scalar : part) {
      std::string value;
      put_bytes(value, 1, scalar.tag);
      put_key(value, 2, Wire::fixed32);
      put_little_endian(value, std::bit_cast<std::uint32_t>(scalar.value));
      put_bytes(summary, 1, value);
    }
    std::string event = event_head(wall_time);
    put_key(event, 2, Wire::varint);
    put_varint(event, step);
    put_bytes(event, 5, summary);
    frame(event);
  }
}

void TensorboardEvents::frame(const std::string& message) {
  std::string record;
  put_little_endian(record, static_cast<std::uint64_t>(message.size()));
  put_little_endian(record, masked_crc(record));
  record += message;
  put_little_endian(record, masked_crc(message));
  sink_(std::as_bytes(std::span(record)));
}

}  // namespace quaver
