#include "data/pipeline.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace trireme::data {
namespace {

constexpr std::size_t kBatchBytes = 1 << 20;
constexpr std::size_t kBytesInFlight = 64 << 20;  // of text; one record may be larger, then it goes alone

struct Job {
  RecordBatch records;
  TokenizedBatch result;
  std::exception_ptr error;
  bool done = false;
};

class Pipeline {
 public:
  Pipeline(const std::vector<InputFile>& inputs, const Tokenizer& tokenizer, const PipelineOptions& options)
      : inputs_(inputs), tokenizer_(tokenizer), options_(options) {}
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  ~Pipeline() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Apart from the constructor, so that the destructor joins those that started if one cannot be started.
  void start() {
    threads_.emplace_back([this] { read_all(); });
    for (int i = 0; i < options_.num_workers; ++i) threads_.emplace_back([this] { work(); });
  }

  // The next result in order; nothing after the last.
  std::optional<TokenizedBatch> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return window_.empty() ? read_everything_ : window_.front()->done; });
    if (window_.empty()) return std::nullopt;
    const std::shared_ptr<Job> job = std::move(window_.front());
    window_.pop_front();
    bytes_in_flight_ -= job->records.bytes.size();
    lock.unlock();
    changed_.notify_all();
    if (job->error) std::rethrow_exception(job->error);
    return std::move(job->result);
  }

 private:
  void read_all() {
    try {
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (!read_input(i)) return;
      }
    } catch (...) {
      auto job = std::make_shared<Job>();
      job->error = std::current_exception();
      job->done = true;
      enqueue(std::move(job));
    }
    const std::lock_guard lock(mutex_);
    read_everything_ = true;
    changed_.notify_all();
  }

  // False when it was told to stop.
  bool read_input(std::size_t index) {
    RecordReader reader(inputs_[index], options_.max_record_bytes);
    bool last = false;
    while (!last) {
      auto job = std::make_shared<Job>();
      job->result.input = index;
      std::optional<RecordBatch> records = reader.next(kBatchBytes);
      job->result.bytes_read = reader.bytes_read();
      last = !records.has_value();
      if (last) {
        job->result.last = true;
        job->result.content_digest = reader.content_digest();
      } else {
        job->records = std::move(*records);
      }
      if (!enqueue(std::move(job))) return false;
    }
    return true;
  }

  bool enqueue(std::shared_ptr<Job> job) {
    std::unique_lock lock(mutex_);
    const std::size_t bytes = job->records.bytes.size();
    changed_.wait(lock, [&] {
      const bool room = bytes_in_flight_ + bytes <= kBytesInFlight && window_.size() < kMostJobs;
      return stopping_ || window_.empty() || room;
    });
    if (stopping_) return false;
    bytes_in_flight_ += bytes;
    if (!job->done) todo_.push_back(job);
    window_.push_back(std::move(job));
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  void work() {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !todo_.empty() || read_everything_; });
        if (stopping_ || todo_.empty()) return;
        job = std::move(todo_.front());
        todo_.pop_front();
      }
      try {
        tokenize(*job);
      } catch (...) {
        job->error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      job->done = true;
      changed_.notify_all();
    }
  }

  void tokenize(Job& job) const {
    const InputFile& input = inputs_[job.result.input];
    for (const Record& record : job.records.records) {
      const Checked checked = check_record(input.kind, job.records.text(record), record, options_.text_field);
      if (checked.fault) {
        job.result.faults.add(*checked.fault);
        continue;
      }
      std::vector<std::int32_t> ids = tokenizer_.encode(checked.text);
      ids.push_back(tokenizer_.end_of_document());
      job.result.tokens += pack_tokens(ids, tokenizer_, options_.token_bytes);
      // The line keeps apart documents of equal content, so that a file of one text repeated is split as well.
      job.result.documents.push_back({ids.size(), checked.text.size(), hash64(digest(checked.text), record.line)});
    }
  }

  static constexpr std::size_t kMostJobs = 4096;

  const std::vector<InputFile>& inputs_;
  const Tokenizer& tokenizer_;
  const PipelineOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> window_;  // in order, from the next to be taken
  std::deque<std::shared_ptr<Job>> todo_;    // those of the window that no worker has taken
  std::size_t bytes_in_flight_ = 0;
  bool read_everything_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

template <class Stored>
std::string pack(const std::vector<std::int32_t>& ids) {
  std::string bytes(ids.size() * sizeof(Stored), '\0');
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<Stored>(ids[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &id, sizeof(id));
  }
  return bytes;
}

}  // namespace

std::string pack_tokens(const std::vector<std::int32_t>& ids, const Tokenizer& tokenizer, int token_bytes) {
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < tokenizer.vocabulary()) continue;
    throw Error(
        4024, "tokenizer " + tokenizer.kind(),
        "gave token id " + std::to_string(id) + ", but its vocabulary has " + std::to_string(tokenizer.vocabulary()),
        "the tokenizer's files contradict one another; take them from their source again");
  }
  return token_bytes == 2 ? pack<std::uint16_t>(ids) : pack<std::uint32_t>(ids);
}

void tokenize_inputs(const std::vector<InputFile>& inputs, const Tokenizer& tokenizer, const PipelineOptions& options,
                     const std::function<void(const TokenizedBatch&)>& take) {
  Pipeline pipeline(inputs, tokenizer, options);
  pipeline.start();
  while (const std::optional<TokenizedBatch> batch = pipeline.next()) take(*batch);
}

}  // namespace trireme::data
