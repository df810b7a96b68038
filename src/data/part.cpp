#include "data/part.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kBufferBytes = 1 << 20;

// A file written front to back and not flushed to disk, with the digest of what was written.
class ScratchFile {
 public:
  explicit ScratchFile(fs::path path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail("cannot create");
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  void write(std::string_view bytes) {
    buffer_.append(bytes);
    if (buffer_.size() >= kBufferBytes) flush();
  }
  std::string finish() {
    flush();
    if (::close(std::exchange(fd_, -1)) != 0) fail("cannot write");
    return digest_.hex();
  }

 private:
  void flush() {
    digest_.add(std::as_bytes(std::span(buffer_)));
    for (std::string_view rest = buffer_; !rest.empty();) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot write");
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    buffer_.clear();
  }
  [[noreturn]] void fail(const char* what) const {
    const int number = errno;
    const bool full = number == ENOSPC || number == EDQUOT;
    throw Error(full ? kDiskFull : kWriteFailed, path_.string(),
                std::string(what) + ": " + std::generic_category().message(number),
                full ? "free space there; preparing needs twice the size of the token shards" : "");
  }

  fs::path path_;
  int fd_ = -1;
  std::string buffer_;
  Digest digest_;
};

std::string digest_of_file(const fs::path& path) {
  return digest(MappedFile(path).bytes());
}

Json to_json(const Faults& faults) {
  Json listed = Json::array();
  for (const Fault& fault : faults.listed) {
    listed.push_back({{"kind", fault.kind}, {"line", fault.line}, {"byte", fault.byte}});
  }
  return {{"counts", faults.counts}, {"listed", std::move(listed)}};
}

Faults read_faults(const Json& json) {
  Faults faults;
  faults.counts = json.at("counts").get<std::map<std::string, std::uint64_t>>();
  for (const Json& item : json.at("listed")) {
    faults.listed.push_back({item.at("kind").get<std::string>(), item.at("line").get<std::uint64_t>(),
                             item.at("byte").get<std::uint64_t>()});
  }
  return faults;
}

}  // namespace

void Faults::add(Fault fault) {
  ++counts[fault.kind];
  if (listed.size() < kMaxListed) listed.push_back(std::move(fault));
}

void Faults::add(const Faults& later) {
  for (const auto& [kind, count] : later.counts) counts[kind] += count;
  for (const Fault& fault : later.listed) {
    if (listed.size() < kMaxListed) listed.push_back(fault);
  }
}

PartStore::PartStore(fs::path folder, std::string key, int token_bytes)
    : folder_(std::move(folder)), key_(std::move(key)), token_bytes_(static_cast<std::uint64_t>(token_bytes)) {}

fs::path PartStore::file(const InputFile& input, const char* suffix) const {
  return folder_ / (digest(std::string_view(input.absolute.native())) + suffix);
}

std::optional<PartRecord> PartStore::find(const InputFile& input) const {
  try {
    if (!fs::is_regular_file(file(input, ".json"))) return std::nullopt;
    const Json json = Json::parse(read_file(file(input, ".json")));
    if (json.at("key") != key_ || json.at("input_bytes") != input.bytes) return std::nullopt;
    PartRecord record;
    record.content_digest = json.at("input_digest").get<std::string>();
    if (json.at("input_modified_ns") != input.modified_ns && data::content_digest(input) != record.content_digest) {
      return std::nullopt;
    }
    record.documents = json.at("documents").get<std::uint64_t>();
    record.tokens = json.at("tokens").get<std::uint64_t>();
    record.bytes = json.at("bytes").get<std::uint64_t>();
    record.faults = read_faults(json.at("malformed"));
    const bool whole = fs::file_size(file(input, ".tokens")) == record.tokens * token_bytes_ &&
                       fs::file_size(file(input, ".documents")) == record.documents * sizeof(PartDocument) &&
                       digest_of_file(file(input, ".tokens")) == json.at("tokens_digest").get<std::string>() &&
                       digest_of_file(file(input, ".documents")) == json.at("documents_digest").get<std::string>();
    return whole ? std::optional(std::move(record)) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;  // torn or from elsewhere: the input is done again
  } catch (const fs::filesystem_error&) {
    return std::nullopt;
  }
}

struct PartStore::Writer::Impl {
  const PartStore& store;
  const InputFile& input;
  ScratchFile tokens, documents;
  PartRecord record;
};

PartStore::Writer::Writer(const PartStore& store, const InputFile& input) {
  fs::remove(store.file(input, ".json"));  // before what it vouches for changes
  impl_.reset(new Impl{store, input, ScratchFile(store.file(input, ".tokens")),
                       ScratchFile(store.file(input, ".documents")), PartRecord{}});
}

PartStore::Writer::Writer(Writer&&) noexcept = default;
PartStore::Writer::~Writer() = default;

void PartStore::Writer::add(std::string_view tokens, std::span<const PartDocument> documents, const Faults& faults) {
  impl_->tokens.write(tokens);
  impl_->documents.write({reinterpret_cast<const char*>(documents.data()), documents.size_bytes()});
  PartRecord& record = impl_->record;
  record.documents += documents.size();
  for (const PartDocument& document : documents) {
    record.tokens += document.tokens;
    record.bytes += document.bytes;
  }
  record.faults.add(faults);
}

PartRecord PartStore::Writer::finish(const std::string& content_digest) {
  const PartStore& store = impl_->store;
  const InputFile& input = impl_->input;
  impl_->record.content_digest = content_digest;
  const Json json = {{"key", store.key_},
                     {"input", input.absolute.string()},
                     {"input_bytes", input.bytes},
                     {"input_modified_ns", input.modified_ns},
                     {"input_digest", content_digest},
                     {"documents", impl_->record.documents},
                     {"tokens", impl_->record.tokens},
                     {"bytes", impl_->record.bytes},
                     {"malformed", to_json(impl_->record.faults)},
                     {"tokens_digest", impl_->tokens.finish()},
                     {"documents_digest", impl_->documents.finish()}};
  const fs::path draft = store.file(input, ".draft");
  ScratchFile file(draft);
  file.write(json.dump(1, ' ', false, Json::error_handler_t::replace));
  file.finish();
  fs::rename(draft, store.file(input, ".json"));
  return std::move(impl_->record);
}

PartStore::Content PartStore::open(const InputFile& input) const {
  return {MappedFile(file(input, ".tokens")), MappedFile(file(input, ".documents"))};
}

}  // namespace trireme::data
