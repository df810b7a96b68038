// What `gzip -9` makes of a text.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace trireme::baselines {

// Bytes of the stream that the gzip program of this machine writes for what feed hands to its argument, piece by piece.
// Error TR3030 where there is no gzip or it fails.
std::uint64_t gzip_size(const std::function<void(const std::function<void(std::string_view)>&)>& feed);

}  // namespace trireme::baselines
