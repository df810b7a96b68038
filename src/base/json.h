// JSON that others wrote (config.json, model.safetensors.index.json): read whole, or one clear error.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace trireme {

inline constexpr std::size_t kMaxJsonBytes = 64 << 20;
inline constexpr int kMaxJsonDepth = 32;

// The object that the text is. Error `code` where it is larger, deeper nested or no object, is no JSON, or has a key
// twice.
nlohmann::json parse_json_object(const std::string& text, const std::string& place, int code);

// The same of a regular file (links are followed), which may be missing or unreadable too.
nlohmann::json read_json_object(const std::filesystem::path& file, int code);

}  // namespace trireme
