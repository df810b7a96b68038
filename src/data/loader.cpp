#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/failpoint.h"

namespace trireme::data {
namespace {

// Blocks of one size that come back when the last user of a step lets go of them, even after the loader is gone.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  Pool(std::size_t num_words, std::size_t max_kept) : num_words_(num_words), max_kept_(max_kept) {}

  std::shared_ptr<std::int32_t[]> take() {
    std::unique_ptr<std::int32_t[]> block;
    {
      const std::lock_guard lock(mutex_);
      if (!kept_.empty()) {
        block = std::move(kept_.back());
        kept_.pop_back();
      }
    }
    if (!block) block = std::make_unique<std::int32_t[]>(num_words_);
    return {block.release(), [pool = shared_from_this()](std::int32_t* memory) { pool->give_back(memory); }};
  }

 private:
  void give_back(std::int32_t* memory) {
    std::unique_ptr<std::int32_t[]> block(memory);
    const std::lock_guard lock(mutex_);
    if (kept_.size() < max_kept_) kept_.push_back(std::move(block));
  }

  std::size_t num_words_, max_kept_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::int32_t[]>> kept_;
};

// A step that a worker made, or why it could not.
struct Made {
  StepBatches step;
  std::exception_ptr error;
};

}  // namespace

namespace {

std::size_t num_prefetched_of(const LoaderOptions& options) {
  return static_cast<std::size_t>(options.prefetch) * static_cast<std::size_t>(options.num_workers);
}

// ids, labels, positions and starts of a step.
std::size_t num_words(const LoaderOptions& options, std::int64_t sequence) {
  return static_cast<std::size_t>(options.split.rounds() * 4 * options.micro_batch_size * sequence);
}

}  // namespace

// Those ahead, and one with the caller.
std::int64_t loader_bytes(const LoaderOptions& options, std::int64_t sequence) {
  return static_cast<std::int64_t>((num_prefetched_of(options) + 1) * num_words(options, sequence) *
                                   sizeof(std::int32_t));
}

struct Loader::Impl {
  const Dataset& dataset;
  const SampleOrder order;
  const LoaderOptions options;
  const std::int64_t sequence;         // T
  const std::uint64_t step_positions;  // M * B
  const std::size_t num_prefetched;
  const std::shared_ptr<Pool> pool;

  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t next_taken = 0;         // position of the step that next() gives
  std::uint64_t next_made = 0;          // position of the step that a free worker makes
  std::uint64_t generation = 0;         // grows with seek(): what was begun before is thrown away
  std::map<std::uint64_t, Made> ready;  // by position
  bool stopping = false;
  double last_wait_seconds = 0;
  std::vector<std::thread> workers;

  Impl(const Dataset& data, SampleOrder sample_order, const LoaderOptions& loader_options)
      : dataset(data),
        order(sample_order),
        options(loader_options),
        sequence(data.sequence_length()),
        step_positions(static_cast<std::uint64_t>(options.split.num_micro_batches) *
                       static_cast<std::uint64_t>(options.micro_batch_size)),
        num_prefetched(num_prefetched_of(options)),
        // One step more than those ahead is with the caller, and each worker holds one that a seek made stale.
        pool(std::make_shared<Pool>(num_words(options, sequence),
                                    num_prefetched + 1 + static_cast<std::size_t>(options.num_workers))) {}

  // Apart from the constructor, so that the destructor joins those that started if one cannot be started.
  void start() {
    for (int i = 0; i < options.num_workers; ++i) workers.emplace_back([this] { work(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  std::size_t words_in_round() const {
    return static_cast<std::size_t>(options.micro_batch_size) * static_cast<std::size_t>(sequence);
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || next_made - next_taken < num_prefetched * step_positions; });
      if (stopping) return;
      const std::uint64_t position = next_made;
      const std::uint64_t begun_in = generation;
      next_made += step_positions;
      lock.unlock();
      Made made;
      try {
        made.step = make(position);
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      if (begun_in != generation) continue;
      ready.emplace(position, std::move(made));
      changed.notify_all();
    }
  }

  StepBatches make(std::uint64_t first_position) const {
    failpoint("data.loader", options.data_rank);
    StepBatches step;
    step.first_position = first_position;
    const std::shared_ptr<std::int32_t[]> memory = pool->take();
    for (int round = 0; round < options.split.rounds(); ++round) {
      Batch batch;
      batch.shape = {0, sequence};
      std::vector<std::uint64_t> samples;
      const int micro_batch = options.split.micro_batch(round, options.data_rank);
      if (micro_batch >= 0) {
        std::int32_t* words = memory.get() + static_cast<std::size_t>(round) * 4 * words_in_round();
        samples = read_round(first_position, micro_batch, words);
        batch.shape.batch = options.micro_batch_size;
        batch.ids = words;
        batch.labels = words + words_in_round();
        batch.positions = words + 2 * words_in_round();
        batch.starts = words + 3 * words_in_round();
        step.valid_labels +=
            std::count_if(batch.labels, batch.labels + words_in_round(), [](std::int32_t label) { return label >= 0; });
      }
      step.rounds.push_back(batch);
      step.samples.push_back(std::move(samples));
    }
    step.memory = memory;
    return step;
  }

  // Fills ids, labels, positions and starts, one after the other.
  std::vector<std::uint64_t> read_round(std::uint64_t first_position, int micro_batch, std::int32_t* words) const {
    const auto batch_size = static_cast<std::uint64_t>(options.micro_batch_size);
    std::vector<std::uint64_t> samples;
    for (std::uint64_t b = 0; b < batch_size; ++b) {
      const std::uint64_t position = first_position + static_cast<std::uint64_t>(micro_batch) * batch_size + b;
      samples.push_back(order.sample(position));
      std::int32_t* row = words + b * static_cast<std::uint64_t>(sequence);
      dataset.read(samples.back(),
                   {row, row + words_in_round(), row + 2 * words_in_round(), row + 3 * words_in_round()});
    }
    return samples;
  }
};

Loader::Loader(const Dataset& dataset, SampleOrder order, const LoaderOptions& options) {
  TRIREME_CHECK(options.micro_batch_size >= 1 && options.num_workers >= 0 && options.prefetch >= 1,
                "a loader needs at least one sample a micro-batch and, of each worker, one step ahead");
  TRIREME_CHECK(options.split.num_data_ranks >= 1 && options.data_rank >= 0 &&
                    options.data_rank < options.split.num_data_ranks &&
                    options.split.num_data_ranks <= options.split.num_micro_batches,
                "a data rank r < R <= M");
  TRIREME_CHECK(order.num_samples == dataset.num_samples(), "the order is over another number of samples");
  impl_ = std::make_unique<Impl>(dataset, order, options);
  impl_->start();
}

Loader::~Loader() = default;

void Loader::seek(std::uint64_t position) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ready.clear();
    ++impl_->generation;
    impl_->next_taken = impl_->next_made = position;
  }
  impl_->changed.notify_all();
}

StepBatches Loader::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(impl_->mutex);
  if (impl_->options.num_workers == 0) {
    StepBatches step = impl_->make(impl_->next_taken);
    impl_->next_taken += impl_->step_positions;
    impl_->last_wait_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return step;
  }
  // An error stays where it is, so that asking again gives the same answer.
  impl_->changed.wait(lock, [&] { return impl_->ready.count(impl_->next_taken) > 0; });
  impl_->last_wait_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto made = impl_->ready.find(impl_->next_taken);
  if (made->second.error) std::rethrow_exception(made->second.error);
  StepBatches step = std::move(made->second.step);
  impl_->ready.erase(made);
  impl_->next_taken += impl_->step_positions;
  lock.unlock();
  impl_->changed.notify_all();
  return step;
}

double Loader::last_wait_seconds() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->last_wait_seconds;
}

}  // namespace trireme::data
