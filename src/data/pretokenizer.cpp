#include "data/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "data/pretokenizer_unicode.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

using Kind = PretokenizerStep::Kind;

// The matches of a text, as tokenizers iterates: an empty match right after another match does not count.
class Matches {
 public:
  Matches(const SplitRegex& regex, std::string_view text, SplitRegex::Scratch& scratch)
      : regex_(regex), text_(text), scratch_(scratch) {}

  bool next(Match& match) {
    while (from_ <= text_.size() && regex_.find(text_, from_, scratch_, match)) {
      if (match.begin != match.end || !matched_ || match.end != last_end_) {
        from_ = last_end_ = match.end;
        matched_ = true;
        return true;
      }
      if (from_ == text_.size()) break;
      from_ += utf8_length(static_cast<unsigned char>(text_[from_]));
    }
    return false;
  }

 private:
  const SplitRegex& regex_;
  std::string_view text_;
  SplitRegex::Scratch& scratch_;
  std::size_t from_ = 0, last_end_ = 0;
  bool matched_ = false;
};

struct Span {
  Match range;
  bool is_match;
};

std::vector<Span> all_spans(Matches matches, std::size_t size, bool invert) {
  std::vector<Span> spans;
  std::size_t end = 0;
  Match match{};
  while (matches.next(match)) {
    if (end != match.begin) spans.push_back({{end, match.begin}, invert});
    spans.push_back({match, !invert});
    end = match.end;
  }
  if (end != size) spans.push_back({{end, size}, invert});
  return spans;
}

void merge_spans(const std::vector<Span>& spans, SplitBehavior behavior, std::vector<Match>& pieces) {
  bool previous = false;  // whether the neighbour that was just seen is a match
  if (behavior == SplitBehavior::merged_with_next) {
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
      if (span->is_match && !previous && !pieces.empty()) {
        pieces.back().begin = span->range.begin;
      } else {
        pieces.push_back(span->range);
      }
      previous = span->is_match;
    }
    std::reverse(pieces.begin(), pieces.end());
    return;
  }
  for (const Span& span : spans) {
    const bool joins = behavior == SplitBehavior::contiguous ? span.is_match == previous : span.is_match && !previous;
    if (behavior == SplitBehavior::removed) {
      if (!span.is_match) pieces.push_back(span.range);
    } else if (joins && !pieces.empty()) {
      pieces.back().end = span.range.end;
    } else {
      pieces.push_back(span.range);
    }
    previous = span.is_match;
  }
}

}  // namespace

Pretokenizer::Pretokenizer(std::vector<PretokenizerStep> steps) : steps_(std::move(steps)) {
  for (const PretokenizerStep& step : steps_) {
    std::optional<SplitRegex>& regex = regexes_.emplace_back();
    if (step.kind == Kind::split) regex.emplace(step.pattern, step.place);
    if (step.kind == Kind::digits) regex.emplace("\\p{N}", step.place);
  }
}

Pretokenizer::Scratch Pretokenizer::make_scratch() const {
  Scratch scratch(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (regexes_[i]) scratch[i].regex.emplace(*regexes_[i]);
  }
  return scratch;
}

void Pretokenizer::run(std::size_t step, std::string_view piece, Scratch& scratch, WordSink& sink) const {
  if (piece.empty()) return;
  if (step == steps_.size()) return sink.word(piece);
  if (steps_[step].kind == Kind::prefix_space) {
    if (piece.front() == ' ') return run(step + 1, piece, scratch, sink);
    std::string& prefixed = scratch[step].text;
    prefixed.assign(1, ' ').append(piece);
    return run(step + 1, prefixed, scratch, sink);
  }
  if (steps_[step].behavior == SplitBehavior::isolated) return run_isolated(step, piece, scratch, sink);
  run_merging(step, piece, scratch, sink);
}

void Pretokenizer::run_isolated(std::size_t step, std::string_view piece, Scratch& scratch, WordSink& sink) const {
  StepScratch& own = scratch[step];
  const std::string_view text = with_stand_ins(piece, steps_[step].kind == Kind::digits, own.text);
  Matches matches(*regexes_[step], text, *own.regex);
  std::size_t end = 0;
  Match match{};
  while (matches.next(match)) {
    run(step + 1, piece.substr(end, match.begin - end), scratch, sink);
    run(step + 1, piece.substr(match.begin, match.end - match.begin), scratch, sink);
    end = match.end;
  }
  run(step + 1, piece.substr(end), scratch, sink);
}

void Pretokenizer::run_merging(std::size_t step, std::string_view piece, Scratch& scratch, WordSink& sink) const {
  StepScratch& own = scratch[step];
  const std::string_view text = with_stand_ins(piece, steps_[step].kind == Kind::digits, own.text);
  own.pieces.clear();
  merge_spans(all_spans(Matches(*regexes_[step], text, *own.regex), text.size(), steps_[step].invert),
              steps_[step].behavior, own.pieces);
  for (const Match& range : own.pieces) {
    run(step + 1, piece.substr(range.begin, range.end - range.begin), scratch, sink);
  }
}

}  // namespace trireme::data
