// TensorBoard's event files: framed records, each one Event message in protobuf's wire form. What we write of it needs
// a dozen fields, so they are written by hand; the numbers are those of TensorBoard's event.proto, summary.proto and
// tensor.proto.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::monitor {

// Castagnoli's, as in iSCSI (RFC 3720, B.4).
std::uint32_t crc32c(std::string_view bytes);

// A record as TFRecord files have it: its length (u64), the masked CRC of the length (u32), the record, the masked CRC
// of the record (u32); all little-endian. A reader that finds less than that waits for the rest.
std::string framed(std::string_view record);

struct Scalar {
  std::string tag;  // "train/loss"
  double value;     // stored as fp32
};

// Messages without a frame. wall_time: seconds since 1970.
std::string version_event(double wall_time);                        // the first of each file
std::string start_event(double wall_time, std::int64_t next_step);  // readers drop what they had from next_step on
std::string scalars_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
std::string text_event(double wall_time, std::int64_t step, std::string_view tag, std::string_view markdown);

}  // namespace trireme::monitor
