#include "data/records.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kBlockBytes = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::uint64_t kHighBits = 0x8080808080808080;

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

// Length of the well-formed sequence that starts at text[at], 0 where there is none.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const unsigned char first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return 1;
  const unsigned char second = static_cast<unsigned char>(byte(at + 1));
  if (!is_continuation(second) || first < 0xC2 || first > 0xF4) return 0;
  if (first < 0xE0) return 2;
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  if (!is_continuation(static_cast<unsigned char>(byte(at + 2)))) return 0;
  if (first < 0xF0) return 3;
  return is_continuation(static_cast<unsigned char>(byte(at + 3))) ? 4 : 0;
}

std::optional<Fault> find_bad_byte(std::string_view bytes, const Record& record) {
  const std::size_t nul = bytes.find('\0');
  const std::size_t invalid = find_invalid_utf8(bytes.substr(0, nul)).value_or(std::string_view::npos);
  const std::size_t at = std::min(nul, invalid);
  if (at == std::string_view::npos) return std::nullopt;
  const auto lines = std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  return Fault{at == nul ? kNulByte : kInvalidUtf8, record.line + static_cast<std::uint64_t>(lines), record.byte + at};
}

// Takes one string field of an object without building the rest; nesting costs a bit a level.
class TextField final : public Json::json_sax_t {
 public:
  explicit TextField(const std::string& name) : name_(name) {}

  std::optional<std::string> text;  // of the last such key, as JSON readers have it
  std::size_t error_position = 0;

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool string(string_t& value) override {
    if (is_wanted()) text = std::move(value);
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) wanted_ = name == name_;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ == 0) root_is_object_ = true;
    return open();
  }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_position = position;
    return false;
  }

 private:
  bool is_wanted() const { return depth_ == 1 && root_is_object_ && wanted_; }
  bool other() {
    if (is_wanted()) text.reset();
    return true;
  }
  bool open() {
    other();
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& name_;
  std::size_t depth_ = 0;
  bool root_is_object_ = false;
  bool wanted_ = false;
};

Checked check_json(std::string_view bytes, const Record& record, const std::string& text_field) {
  const auto fault = [&](const char* kind, std::size_t at = 0) {
    return Checked{{}, Fault{kind, record.line, record.byte + at}};
  };
  // The parser would pass over a mark at the start of any line; the one at the start of the file is gone already.
  if (bytes.starts_with(kByteOrderMark)) return fault(kBadJson);
  TextField field(text_field);
  if (!Json::sax_parse(bytes.begin(), bytes.end(), &field)) {
    return fault(kBadJson, std::min(field.error_position - std::min<std::size_t>(field.error_position, 1),
                                    bytes.size() - std::min<std::size_t>(bytes.size(), 1)));
  }
  if (!field.text) return fault(kNoTextField);
  if (field.text->empty()) return fault(kEmpty);
  if (field.text->find('\0') != std::string::npos) return fault(kNulByte);
  return {std::move(*field.text), std::nullopt};
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    if (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kHighBits) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const std::size_t length = sequence_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

Checked check_record(InputKind kind, std::string_view bytes, const Record& record, const std::string& text_field) {
  if (record.too_long) return {{}, Fault{kTooLong, record.line, record.byte}};
  if (std::optional<Fault> fault = find_bad_byte(bytes, record)) return {{}, std::move(fault)};
  if (kind == InputKind::jsonl) return check_json(bytes, record, text_field);
  if (bytes.empty()) return {{}, Fault{kEmpty, record.line, record.byte}};
  return {std::string(bytes), std::nullopt};
}

RecordReader::RecordReader(const InputFile& input, std::uint64_t max_record_bytes)
    : input_(input), max_record_bytes_(max_record_bytes) {
  do {
    fd_ = ::open(input.path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) {
    throw Error(4002, input.path.string(), "the input cannot be read: " + std::generic_category().message(errno));
  }
}

RecordReader::~RecordReader() {
  ::close(fd_);
}

// False at the end of the file.
bool RecordReader::fill() {
  const bool first = offset_ == 0;
  block_.resize(kBlockBytes);
  block_at_ = 0;
  std::size_t size = 0;
  while (size < kBlockBytes) {
    const ssize_t got = ::read(fd_, block_.data() + size, kBlockBytes - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw Error(4002, input_.path.string(), "the input cannot be read: " + std::generic_category().message(errno));
    }
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  block_.resize(size);
  digest_.add(std::as_bytes(std::span(block_)));
  offset_ += size;
  if (first && block_.starts_with(kByteOrderMark)) {
    block_at_ = kByteOrderMark.size();
    open_.byte = block_at_;
  }
  if (size > 0) return true;
  if (offset_ != input_.bytes) {
    throw Error(4007, input_.path.string(),
                "the input changed while it was read: it had " + std::to_string(input_.bytes) + " bytes, then " +
                    std::to_string(offset_),
                "run the command again once nothing writes to it");
  }
  return false;
}

void RecordReader::take(std::string_view piece, RecordBatch& batch) {
  if (!open_.too_long && piece.size() > max_record_bytes_ - std::min<std::uint64_t>(open_.size, max_record_bytes_)) {
    open_.too_long = true;
    open_.size = 0;
    batch.bytes.resize(open_.begin);
  }
  if (open_.too_long) return;
  batch.bytes.append(piece);
  open_.size += piece.size();
}

void RecordReader::close_record(RecordBatch& batch, std::uint64_t next_byte) {
  const bool blank = input_.kind == InputKind::jsonl && !open_.too_long &&
                     batch.text(open_).find_first_not_of(" \t\r") == std::string_view::npos;
  if (blank) {
    batch.bytes.resize(open_.begin);
  } else {
    batch.records.push_back(open_);
  }
  open_ = Record{.line = open_.line + 1, .byte = next_byte, .begin = batch.bytes.size()};
}

std::optional<RecordBatch> RecordReader::next(std::size_t batch_bytes) {
  RecordBatch batch;
  open_.begin = 0;
  while (!at_end_) {
    if (block_at_ == block_.size() && !fill()) {
      at_end_ = true;
      // A text file is a record even if it is empty; a last line of nothing is none.
      if (input_.kind == InputKind::text || open_.size > 0 || open_.too_long) close_record(batch, offset_);
      break;
    }
    const std::string_view rest = std::string_view(block_).substr(block_at_);
    const std::size_t newline = input_.kind == InputKind::jsonl ? rest.find('\n') : std::string_view::npos;
    take(rest.substr(0, newline), batch);
    if (newline == std::string_view::npos) {
      block_at_ = block_.size();
      continue;
    }
    block_at_ += newline + 1;
    close_record(batch, offset_ - (block_.size() - block_at_));
    if (batch.bytes.size() + batch.records.size() * sizeof(Record) >= batch_bytes) break;
  }
  if (batch.records.empty()) return std::nullopt;
  return batch;
}

std::string content_digest(const InputFile& input) {
  RecordReader reader(input, 0);  // keeps no record's bytes, but reads all
  while (reader.next(kBlockBytes)) {
  }
  return reader.content_digest();
}

}  // namespace trireme::data
