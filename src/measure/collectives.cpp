#include "measure/collectives.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/collectives.h"
#include "engine/device_ranks.h"
#include "measure/device.h"
#include "measure/load.h"

namespace trireme::measure {

using engine::Memory;
using engine::MemoryKind;

constexpr int kFewest = 5, kMost = 1000;                 // runs that count
constexpr std::int64_t kValues = std::int64_t{1} << 20;  // elements that are there to be copied

std::string_view to_string(Collective collective) {
  constexpr std::string_view kNames[] = {"all_gather", "reduce_scatter", "all_reduce"};
  return kNames[static_cast<std::size_t>(collective)];
}

double bus_bytes_per_s(Collective collective, double bytes, double seconds, int ranks) {
  const double passes = collective == Collective::all_reduce ? 2 : 1;
  return passes * bytes / seconds * (ranks - 1) / ranks;
}

struct Exchange::Devices {
  Devices(comm::Communicator& ranks, std::int64_t scratch_bytes, std::vector<const Memory*> targets, bool copies)
      : by_copies(copies && engine::ranks_in_reach(ranks, ranks.world_size()) == ranks.world_size()),
        scratch(scratch_bytes, MemoryKind::device),
        set(by_copies ? engine::DeviceRanks(ranks, scratch, std::move(targets)) : engine::DeviceRanks(ranks, scratch)) {
  }
  bool by_copies;
  Memory scratch;
  engine::DeviceRanks set;
};

Exchange::Exchange(comm::Communicator& ranks, DType dtype, std::int64_t most_bytes, const kernels::Stream* stream,
                   bool copies)
    : ranks_(ranks), dtype_(dtype), stream_(stream) {
  TRIREME_CHECK(ranks.world_size() > 1, "a rank by itself exchanges nothing");
  const MemoryKind kind = stream == nullptr ? MemoryKind::host : MemoryKind::device;
  const int world_size = ranks.world_size();
  most_bytes = std::max(most_bytes, std::int64_t{4} * world_size);
  whole_ = some_memory(dtype, most_bytes / size_of(dtype), kind);
  values_ = some_memory(DType::f32, std::min(most_bytes / 4, kValues), kind);
  sums_ = Memory(most_bytes, kind);
  if (stream == nullptr) return;
  std::int64_t scratch = 0;
  for (const DType slots : {dtype, DType::f32}) {
    const std::int64_t slice = most_bytes / size_of(slots) / world_size + 1;
    scratch =
        std::max(scratch, engine::device_scratch_bytes({slots, slots, DType::f32}, slice, world_size, world_size));
  }
  devices_ = std::make_unique<Devices>(ranks, scratch, std::vector<const Memory*>{&whole_, &sums_}, copies);
}

Exchange::~Exchange() = default;

std::string_view Exchange::way() const {
  if (devices_ == nullptr) return "host";
  return devices_->by_copies ? "copies" : "NCCL";
}

std::int64_t Exchange::whole_bytes(Collective collective, std::int64_t bytes) const {
  const std::int64_t least = ranks_.world_size() * size_of(dtype_for(collective));
  return std::max(bytes / least, std::int64_t{1}) * least;
}

void Exchange::run(Collective collective, std::int64_t bytes) {
  using comm::ordered_all_reduce, comm::ordered_reduce_scatter;
  const std::int64_t part = bytes / ranks_.world_size();
  const comm::ReduceTypes types{dtype_, dtype_, DType::f32};
  const auto with = [&](auto& ranks) {
    if (collective == Collective::all_reduce) return ordered_all_reduce(ranks, sums_.at(0), DType::f32, bytes / 4);
    ordered_reduce_scatter(ranks, whole_.at(0), types, sums_.at(0), part / size_of(dtype_), ranks.world_size(), true);
  };
  std::byte* const mine = whole_.at(ranks_.rank() * part);
  if (devices_ != nullptr) {
    if (collective == Collective::all_gather) return devices_->set.all_gather(mine, whole_.at(0), part);
    return with(devices_->set);
  }
  if (collective != Collective::all_gather) return with(ranks_);
  comm::all_gather(ranks_, {mine, static_cast<std::size_t>(part)}, {whole_.at(0), static_cast<std::size_t>(bytes)});
}

// Sums that are summed again and again would end as infinity.
void Exchange::reset(std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += values_.bytes()) {
    kernels::copy(sums_.at(at), values_.at(0), std::min(values_.bytes(), bytes - at));
  }
}

Timing Exchange::time(Collective collective, std::int64_t bytes, double seconds) {
  bytes = whole_bytes(collective, bytes);
  std::vector<std::function<void()>> works;
  if (collective == Collective::all_reduce) works.emplace_back([&] { reset(bytes); });
  works.emplace_back([&] { run(collective, bytes); });
  // All ranks run as often: what rank 0 finds right.
  const double once = time_rounds(works, 3, stream_).back().median;
  int rounds = static_cast<int>(std::clamp(seconds / std::max(once, 1e-9), double{kFewest}, double{kMost}));
  comm::broadcast(ranks_, std::as_writable_bytes(std::span(&rounds, 1)), 0);
  return time_rounds(works, rounds, stream_).back();
}

std::vector<CommRow> measure_comm(const CommOptions& options, comm::Communicator& ranks) {
  const Place place(options.device, /*high_priority=*/true);  // as an engine's: beside what computes, and before it
  Exchange exchange(ranks, options.dtype, std::ranges::max(options.bytes), place.stream(), options.copies);
  std::vector<CommRow> rows;
  const auto measure = [&](bool loaded) {
    comm::barrier(ranks);
    for (const std::int64_t bytes : options.bytes) {
      for (const auto collective : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
        const std::int64_t whole = exchange.whole_bytes(collective, bytes);
        const Timing seconds = exchange.time(collective, whole, options.seconds);
        rows.push_back({exchange.way(), collective, exchange.dtype_for(collective), whole, loaded, seconds,
                        bus_bytes_per_s(collective, static_cast<double>(whole), seconds.median, ranks.world_size())});
      }
    }
    comm::barrier(ranks);
  };
  measure(false);
  const Load load(options.threads, options.device);
  measure(true);
  return rows;
}

std::string to_table(const std::vector<CommRow>& rows) {
  std::string text = fmt::format("  {:<16}{:>7}{:>12}{:>12}{:>10}{:>18}{:>10}\n", "", "type", "bytes", "us", "GB/s",
                                 "us beside work", "GB/s");
  for (const CommRow& row : rows) {
    if (row.loaded) continue;
    const auto beside = std::ranges::find_if(rows, [&](const CommRow& other) {
      return other.loaded && other.collective == row.collective && other.bytes == row.bytes;
    });
    text += fmt::format("  {:<16}{:>7}{:>12}{:>12.1f}{:>10.2f}{:>18.1f}{:>10.2f}\n", to_string(row.collective),
                        row.dtype == DType::f32 ? "fp32" : "bf16", row.bytes, 1e6 * row.seconds.median,
                        1e-9 * row.bus_bytes_per_s, 1e6 * beside->seconds.median, 1e-9 * beside->bus_bytes_per_s);
  }
  return text;
}

}  // namespace trireme::measure
