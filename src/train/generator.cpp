#include "train/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/random.h"
#include "chain/forward.h"
#include "data/tokenizer_stream.h"
#include "engine/batch_arrays.h"
#include "kernels/device.h"

namespace trireme::train {

namespace {

// Tokens of a prompt that go through the model at once: enough for its matrix products, and little memory.
constexpr std::int64_t kPrefillTokens = 512;

// Token ids from the likeliest on.
class ByLikelihood {
 public:
  explicit ByLikelihood(std::span<const float> logits) : less_{logits}, heap_(logits.size()) {
    std::iota(heap_.begin(), heap_.end(), 0);
    std::make_heap(heap_.begin(), heap_.end(), less_);
  }
  std::int32_t next() {
    std::pop_heap(heap_.begin(), heap_.end(), less_);
    const std::int32_t id = heap_.back();
    heap_.pop_back();
    return id;
  }

 private:
  struct Less {
    std::span<const float> logits;
    bool operator()(std::int32_t a, std::int32_t b) const {
      return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
    }
  };
  Less less_;
  std::vector<std::int32_t> heap_;
};

struct Weighted {
  std::int32_t id;
  double weight;
};

std::int32_t draw(std::span<const Weighted> tokens, double u) {
  double all = 0, reached = 0;
  for (const Weighted& token : tokens) all += token.weight;
  for (const Weighted& token : tokens) {
    reached += token.weight;
    if (reached >= u * all) return token.id;
  }
  return tokens.back().id;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double u) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (options.temperature == 0) return static_cast<std::int32_t>(likeliest - logits.begin());
  const auto weight_of = [&](std::int32_t id) {
    return std::exp((static_cast<double>(logits[id]) - *likeliest) / options.temperature);
  };
  std::vector<Weighted> kept;
  const auto count = std::ssize(logits);
  if (options.top_k == 0 && options.top_p >= 1) {
    for (std::int32_t id = 0; id < count; ++id) kept.push_back({id, weight_of(id)});
    return draw(kept, u);
  }
  ByLikelihood order(logits);
  const auto keep_next = [&] {
    const std::int32_t id = order.next();
    kept.push_back({id, weight_of(id)});
    return kept.back().weight;
  };
  double all = 0, sum = 0;
  if (options.top_k > 0) {
    while (std::ssize(kept) < std::min<std::int64_t>(options.top_k, count)) all += keep_next();
    std::size_t enough = 0;
    do sum += kept[enough++].weight;
    while (enough < kept.size() && sum < options.top_p * all);
    kept.resize(enough);
  } else {
    for (std::int32_t id = 0; id < count; ++id) all += weight_of(id);
    do sum += keep_next();
    while (std::ssize(kept) < count && sum < options.top_p * all);
  }
  return draw(kept, u);
}

// One prompt on its way.
struct Sequence {
  Sequence(std::size_t number, const data::Tokenizer& tokenizer) : prompt(number), stream(tokenizer) {}

  std::size_t prompt;
  std::vector<std::int32_t> ids;  // the context
  std::int64_t past = 0;          // of ids, those in the cache
  std::int64_t written = 0;
  data::TextStream stream;
  engine::Memory memory;
  std::optional<SequenceCache> cache;
};

class Generator::Run {
 public:
  Run(const TextModel& text, std::span<const std::string> prompts, const SamplingOptions& options,
      std::int64_t together, const OnText& on_text)
      : text_(text), chain_(text.model.chain), options_(options), on_text_(on_text) {
    if (is_on_device()) on_stream_.emplace(stream_.emplace());
    for (const std::string& prompt : prompts) begin(waiting_.emplace_back(waiting_.size(), *text_.tokenizer), prompt);
    for (std::int32_t id = 0; id < text.tokenizer->vocabulary(); ++id) {
      if (!text.tokenizer->has(id)) holes_.push_back(id);
    }
    // Rows of one batch are on one side of a border.
    together = std::max<std::int64_t>(std::min(together, std::ssize(prompts)), 1);
    together_ = chain_.position_borders.empty() ? together : 1;
    for (const Sequence& sequence : waiting_) capacity_ = std::max(capacity_, tokens_of(sequence));
    prefill_ = chain_.position_borders.empty() ? std::min(kPrefillTokens, capacity_) : capacity_;
    const BatchShape prefill = shape_of(1, prefill_), next = shape_of(together_, 1);
    memory_ = where_it_runs(std::max(forward_bytes(chain_, prefill), forward_bytes(chain_, next)));
    arrays_ = engine::BatchArrays({together_, (prefill_ + together_ - 1) / together_}, 1, std::ssize(chain_.units),
                                  text_.model.memory);
    logits_ = where_it_runs(together_ * chain_.vocabulary * static_cast<std::int64_t>(sizeof(float)));
    logits_on_host_ =
        engine::Memory(logits_.bytes(), is_on_device() ? engine::MemoryKind::pinned : engine::MemoryKind::host);
  }

  void operator()() {
    std::list<Sequence> active;
    while (!waiting_.empty() || !active.empty()) {
      while (!waiting_.empty() && std::ssize(active) < together_) {
        active.splice(active.end(), waiting_, waiting_.begin());
        allocate(active.back());
      }
      step(active);
      std::erase_if(active, [](const Sequence& sequence) { return !sequence.cache; });
    }
  }

 private:
  void begin(Sequence& sequence, const std::string& prompt) const {
    sequence.ids = text_.before;
    const std::vector<std::int32_t> given = text_.tokenizer->encode(prompt);
    sequence.ids.insert(sequence.ids.end(), given.begin(), given.end());
    sequence.stream.pass_over(given);
    if (sequence.ids.empty() && text_.tokenizer->special().begin) sequence.ids = {*text_.tokenizer->special().begin};
    if (sequence.ids.empty()) {
      throw Error(2270, "prompt " + std::to_string(sequence.prompt + 1),
                  "is empty, and the model's tokenizer puts nothing before a text", "give a prompt of a word at least");
    }
  }

  std::int64_t tokens_of(const Sequence& sequence) const {
    return std::min(std::ssize(sequence.ids) + options_.max_tokens, chain_.max_positions);
  }

  bool is_on_device() const { return text_.model.memory == engine::MemoryKind::device; }
  engine::Memory where_it_runs(std::int64_t bytes) const { return engine::Memory(bytes, text_.model.memory); }

  BatchShape shape_of(std::int64_t rows, std::int64_t tokens) const { return {rows, tokens, capacity_ - tokens}; }

  void allocate(Sequence& sequence) const {
    const std::int64_t tokens = tokens_of(sequence);
    sequence.memory = where_it_runs(cache_bytes(chain_, tokens));
    sequence.cache.emplace(chain_, tokens, sequence.memory.at(0));
  }

  // One more token for each.
  void step(std::list<Sequence>& active) {
    std::vector<Sequence*> ready;
    for (Sequence& sequence : active) {
      keep_inside(sequence);
      while (std::ssize(sequence.ids) - sequence.past > prefill_) forward({{&sequence}}, prefill_, false);
      if (std::ssize(sequence.ids) - sequence.past == 1) {
        ready.push_back(&sequence);
      } else {
        forward({{&sequence}}, std::ssize(sequence.ids) - sequence.past, true);
      }
    }
    if (!ready.empty()) forward(ready, 1, true);
  }

  // What the cache holds is void when the context loses its older half, and when it reaches a border.
  void keep_inside(Sequence& sequence) const {
    const std::int64_t length = std::ssize(sequence.ids);
    if (length > chain_.max_positions) {
      sequence.ids.erase(sequence.ids.begin(),
                         sequence.ids.end() - std::max<std::int64_t>(chain_.max_positions / 2, 1));
      sequence.past = 0;
    }
    for (const std::int64_t border : chain_.position_borders) {
      if (sequence.past <= border && length > border) sequence.past = 0;
    }
  }

  // The next T tokens of each through the model.
  void forward(const std::vector<Sequence*>& rows, std::int64_t T, bool draws) {
    const auto B = std::ssize(rows);
    std::vector<std::int32_t> ids, positions, past, starts(static_cast<std::size_t>(B * T), 0);
    std::vector<const SequenceCache*> caches;
    for (Sequence* row : rows) {
      past.push_back(static_cast<std::int32_t>(row->past));
      caches.push_back(&*row->cache);
      for (std::int64_t t = 0; t < T; ++t, ++row->past) {
        ids.push_back(row->ids[static_cast<std::size_t>(row->past)]);
        positions.push_back(static_cast<std::int32_t>(row->past));
      }
    }
    const std::vector<std::byte*> places = places_in(chain_, caches);
    Batch on_host{shape_of(B, T), ids.data(), nullptr, positions.data(), starts.data()};
    on_host.past = past.data();
    on_host.caches = places.data();
    const Batch batch = arrays_.upload(on_host, 0);
    const HeadInput head = forward_to_head(chain_, batch, text_.model.parameters, memory_.at(0));
    if (draws) {
      const std::vector<std::int64_t> last(static_cast<std::size_t>(B), T - 1);
      chain_.units.back()->logits({batch, text_.model.parameters.back(), head.boundary, {}, nullptr, head.workspace},
                                  last, reinterpret_cast<float*>(logits_.at(0)));
      kernels::copy(logits_on_host_.at(0), logits_.at(0),
                    B * chain_.vocabulary * static_cast<std::int64_t>(sizeof(float)));
    }
    if (stream_) stream_->synchronize();
    for (std::size_t b = 0; draws && b < rows.size(); ++b) take(*rows[b], logits_of(b));
  }

  std::span<float> logits_of(std::size_t row) const {
    const auto vocabulary = static_cast<std::size_t>(chain_.vocabulary);
    return {reinterpret_cast<float*>(logits_on_host_.at(0)) + row * vocabulary, vocabulary};
  }

  void take(Sequence& sequence, std::span<float> logits) const {
    const auto known = logits.first(static_cast<std::size_t>(text_.tokenizer->vocabulary()));
    for (const std::int32_t hole : holes_) known[hole] = -std::numeric_limits<float>::infinity();
    const std::uint64_t draw =
        (static_cast<std::uint64_t>(sequence.prompt) << 40U) + static_cast<std::uint64_t>(sequence.written);
    const std::int32_t id = sample_token(known, options_, random_uniform(options_.seed, draws_, draw));
    const bool ends = std::find(text_.ends.begin(), text_.ends.end(), id) != text_.ends.end();
    std::string piece;
    if (!ends) {
      sequence.ids.push_back(id);
      piece = sequence.stream.push(id);
      ++sequence.written;
    }
    const bool last = ends || sequence.written >= options_.max_tokens;
    if (last) {
      piece += sequence.stream.finish();
      sequence.cache.reset();
    }
    if (last || !piece.empty()) on_text_(sequence.prompt, piece, last);
  }

  const TextModel& text_;
  const Chain& chain_;
  const SamplingOptions& options_;
  const OnText& on_text_;
  const std::uint64_t draws_ = stream_id("generate");
  std::vector<std::int32_t> holes_;  // ids of no token
  std::list<Sequence> waiting_;
  std::int64_t together_ = 1, prefill_ = 1, capacity_ = 1;
  // Of a device. What follows works on it.
  std::optional<kernels::Stream> stream_;
  std::optional<kernels::OnStream> on_stream_;
  engine::Memory memory_;
  engine::BatchArrays arrays_;
  engine::Memory logits_, logits_on_host_;  // [together, V]
};

Generator::Generator(const std::string& where, engine::MemoryKind memory) : text_(load_text_model(where, memory)) {}

void Generator::generate(std::span<const std::string> prompts, const SamplingOptions& options, std::int64_t together,
                         const OnText& on_text) const {
  Run(text_, prompts, options, together, on_text)();
}

std::string Generator::generate(const std::string& prompt, const SamplingOptions& options) const {
  std::string text;
  generate(std::span(&prompt, 1), options, 1, [&](std::size_t, std::string_view piece, bool) { text += piece; });
  return text;
}

}  // namespace trireme::train
