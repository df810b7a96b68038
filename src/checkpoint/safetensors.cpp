#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // as other readers have it
constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

[[noreturn]] void fail(int code, const std::filesystem::path& path, const std::string& message) {
  throw Error(code, path.string(), message, "the file is damaged or no safetensors file; fetch or write it again");
}

struct HeaderEntry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Reads the header event by event: nothing that the format does not know is ever stored, however deep or long it is.
class HeaderHandler : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderHandler(const std::filesystem::path& path) : path_(path) {}

  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(double, const std::string& text) override { return unexpected(text); }
  bool number_integer(std::int64_t value) override { return unexpected(std::to_string(value)); }  // negative ones only
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (state_ != State::shape && state_ != State::offsets) return unexpected(std::to_string(value));
    auto& list = state_ == State::shape ? entries.back().shape : entries.back().offsets;
    if (list.size() == (state_ == State::shape ? kMaxDimensions : 2)) return unexpected("a longer list");
    list.push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (state_ == State::metadata && expects_value_) {
      if (!metadata.emplace(key_, value).second) duplicate(key_);
      expects_value_ = false;
      return true;
    }
    if (state_ != State::tensor || key_ != "dtype") return unexpected("a string");
    take_once(entries.back().has_dtype);
    entries.back().dtype = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::start) {
      state_ = State::root;
    } else if (state_ == State::root && key_ == kMetadata) {
      if (has_metadata_) duplicate(key_);
      has_metadata_ = true;
      state_ = State::metadata;
    } else if (state_ == State::root) {
      entries.push_back({.name = key_});
      state_ = State::tensor;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    state_ = state_ == State::root ? State::done : State::root;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ == State::tensor && key_ == "shape") {
      take_once(entries.back().has_shape);
      state_ = State::shape;
    } else if (state_ == State::tensor && key_ == "data_offsets") {
      take_once(entries.back().has_offsets);
      state_ = State::offsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    state_ = State::tensor;
    return true;
  }

  bool key(std::string& name) override {
    key_ = name;
    expects_value_ = true;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail(5022, path_, "the header is no JSON at byte " + std::to_string(position + kLengthBytes));
  }

 private:
  enum class State { start, root, metadata, tensor, shape, offsets, done };

  bool unexpected(const std::string& what) const {
    fail(5023, path_,
         "the header has " + what.substr(0, 64) + " where the format has none, near \"" + shown(key_) + "\"");
  }
  void duplicate(const std::string& name) const { fail(5026, path_, "\"" + shown(name) + "\" is there twice"); }
  void take_once(bool& seen) const {
    if (seen) duplicate(entries.back().name + "." + key_);
    seen = true;
  }
  static std::string shown(const std::string& name) { return name.substr(0, 200); }

  const std::filesystem::path& path_;
  State state_ = State::start;
  std::string key_;
  bool has_metadata_ = false, expects_value_ = false;
};

// The entry's shape, and its data cut out of the data section.
TensorEntry resolve(const HeaderEntry& header, std::span<const std::byte> data, const std::filesystem::path& path) {
  const auto fail_at = [&](int code, const std::string& why) {
    fail(code, path, "tensor " + header.name + ": " + why);
  };
  if (!header.has_dtype || !header.has_shape || header.offsets.size() != 2) {
    fail_at(5023, "dtype, shape or data_offsets is missing");
  }
  TensorEntry entry;
  try {
    entry.dtype = dtype_from_safetensors(header.dtype);
  } catch (const Error& error) {
    throw Error(error.code(), path.string(), "tensor " + header.name + ": " + error.message(), error.remedy());
  }
  std::uint64_t bytes = static_cast<std::uint64_t>(size_of(entry.dtype));
  for (const std::uint64_t size : header.shape) {
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        __builtin_mul_overflow(bytes, size, &bytes)) {
      fail_at(5024, "the shape is too large");
    }
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  const std::uint64_t begin = header.offsets[0], end = header.offsets[1];
  if (begin > end || end > data.size()) {
    fail_at(5024, "data_offsets " + std::to_string(begin) + ", " + std::to_string(end) + " are outside the " +
                      std::to_string(data.size()) + " bytes of data");
  }
  if (end - begin != bytes) {
    fail_at(5024,
            "the shape needs " + std::to_string(bytes) + " bytes, data_offsets hold " + std::to_string(end - begin));
  }
  entry.data = data.subspan(begin, bytes);
  return entry;
}

void check_no_gap(const std::vector<HeaderEntry>& entries, std::uint64_t data_bytes,
                  const std::filesystem::path& path) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const HeaderEntry& entry : entries) ranges.emplace_back(entry.offsets[0], entry.offsets[1]);
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at) {
      fail(5025, path,
           (begin < at ? "tensors overlap at data byte " : "no tensor holds data byte ") +
               std::to_string(std::min(begin, at)));
    }
    at = end;
  }
  if (at != data_bytes) fail(5025, path, "no tensor holds data byte " + std::to_string(at));
}

}  // namespace

std::string shown(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  std::uint64_t length = 0;
  if (bytes.size() < kLengthBytes) fail(5021, path, "has only " + std::to_string(bytes.size()) + " bytes");
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeader || length > bytes.size() - kLengthBytes) {
    fail(5021, path,
         "the header's length is " + std::to_string(length) + ", the file has " + std::to_string(bytes.size()) +
             " bytes");
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  if (length == 0 || *text != '{') fail(5022, path, "the header does not begin with {");
  // The library takes a NUL for the end of the text, which would hide what follows.
  if (std::memchr(text, 0, length) != nullptr) fail(5022, path, "the header contains a NUL");
  HeaderHandler handler(path);
  nlohmann::json::sax_parse(text, text + length, &handler);

  const std::span<const std::byte> data = bytes.subspan(kLengthBytes + length);
  for (const HeaderEntry& entry : handler.entries) {
    if (!tensors_.emplace(entry.name, resolve(entry, data, path)).second) {
      fail(5026, path, "tensor \"" + entry.name.substr(0, 200) + "\" is there twice");
    }
  }
  check_no_gap(handler.entries, data.size(), path);
  metadata_ = std::move(handler.metadata);
}

}  // namespace trireme::checkpoint
