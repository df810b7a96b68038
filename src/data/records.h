// Input files as records: a text file is one, a line of a JSONL file is one. Read in pieces of bounded size, so that a
// line of any length can be found and named without being held; checked apart from reading, on another thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "data/inputs.h"

namespace trireme::data {

// The kinds of malformed records.
inline constexpr const char* kBadJson = "bad JSON";
inline constexpr const char* kNoTextField = "no text field";
inline constexpr const char* kInvalidUtf8 = "invalid UTF-8";
inline constexpr const char* kNulByte = "NUL byte";
inline constexpr const char* kTooLong = "too long";
inline constexpr const char* kEmpty = "empty";

struct Record {
  std::uint64_t line = 1;  // from 1
  std::uint64_t byte = 0;  // offset of the record's first byte in the file
  std::size_t begin = 0;   // its bytes in RecordBatch::bytes; none are kept of one that is too long
  std::size_t size = 0;
  bool too_long = false;
};

// Consecutive records of one file.
struct RecordBatch {
  std::string bytes;
  std::vector<Record> records;
  std::string_view text(const Record& record) const {
    return std::string_view(bytes).substr(record.begin, record.size);
  }
};

struct Fault {
  std::string kind;
  std::uint64_t line = 0;  // of the first byte that is wrong, where there is one; else of the record
  std::uint64_t byte = 0;
};

// Front to back through one file. Blank lines of JSONL and a byte order mark at the start of the file are left out.
class RecordReader {
 public:
  RecordReader(const InputFile& input, std::uint64_t max_record_bytes);
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;
  ~RecordReader();

  // The next records, at least one, with about batch_bytes in all; nothing at the end of the file. Holds at most
  // max_record_bytes and two read blocks more. Errors: TR4002, TR4007 if the file's size is not what it was.
  std::optional<RecordBatch> next(std::size_t batch_bytes);
  std::string content_digest() const { return digest_.hex(); }  // of all bytes read so far
  std::uint64_t bytes_read() const { return offset_; }

 private:
  bool fill();
  void take(std::string_view piece, RecordBatch& batch);
  void close_record(RecordBatch& batch, std::uint64_t next_byte);

  InputFile input_;
  std::uint64_t max_record_bytes_;
  int fd_ = -1;
  Digest digest_;
  std::string block_;
  std::size_t block_at_ = 0;
  std::uint64_t offset_ = 0;  // bytes of the file read into blocks so far
  bool at_end_ = false;
  Record open_;  // the record that is being read
};

// Reads the whole file.
std::string content_digest(const InputFile& input);

// The document of a record: its text, or what is wrong with it.
struct Checked {
  std::string text;
  std::optional<Fault> fault;
};
Checked check_record(InputKind kind, std::string_view bytes, const Record& record, const std::string& text_field);

// The first byte that does not belong to well-formed UTF-8 (Unicode 15, table 3-7).
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace trireme::data
