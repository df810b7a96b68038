#include "data/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "data/pretokenizer_unicode.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

using Kind = PretokenizerStep::Kind;

CharacterTables tables_of(Kind kind) {
  if (kind == Kind::digits) return CharacterTables::digits;
  return kind == Kind::punctuation ? CharacterTables::punctuation : CharacterTables::regex;
}

struct Span {
  Match range;
  bool is_match;
};

std::vector<Span> all_spans(RegexMatches matches, std::size_t size, bool invert) {
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
    if (step.kind == Kind::punctuation) regex.emplace("[$+<=>^`|~\\p{P}]", step.place);
  }
}

Pretokenizer::Scratch Pretokenizer::make_scratch() const {
  Scratch scratch(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (regexes_[i]) scratch[i].regex.emplace(*regexes_[i]);
  }
  return scratch;
}

void Pretokenizer::run(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return sink.word(piece.text);
  if (steps_[step].kind == Kind::prefix_space) {
    if (piece.text.front() == ' ') return run(step + 1, piece, scratch, sink);
    std::string& prefixed = scratch[step].text;
    prefixed.assign(1, ' ').append(piece.text);
    return run(step + 1, {prefixed, piece.at_front}, scratch, sink);
  }
  if (steps_[step].kind == Kind::metaspace) return run_metaspace(step, piece, scratch, sink);
  if (steps_[step].behavior == SplitBehavior::isolated) return run_isolated(step, piece, scratch, sink);
  run_merging(step, piece, scratch, sink);
}

void Pretokenizer::run_isolated(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const {
  StepScratch& own = scratch[step];
  const std::string_view text = with_stand_ins(piece.text, tables_of(steps_[step].kind), own.text);
  RegexMatches matches(*regexes_[step], text, *own.regex);
  std::size_t end = 0;
  for (Match match{}; matches.next(match);) {
    run(step + 1, piece.part(end, match.begin), scratch, sink);
    run(step + 1, piece.part(match.begin, match.end), scratch, sink);
    end = match.end;
  }
  run(step + 1, piece.part(end, piece.text.size()), scratch, sink);
}

void Pretokenizer::run_merging(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const {
  StepScratch& own = scratch[step];
  const std::string_view text = with_stand_ins(piece.text, tables_of(steps_[step].kind), own.text);
  own.pieces.clear();
  merge_spans(all_spans(RegexMatches(*regexes_[step], text, *own.regex), text.size(), steps_[step].invert),
              steps_[step].behavior, own.pieces);
  for (const Match& range : own.pieces) run(step + 1, piece.part(range.begin, range.end), scratch, sink);
}

void Pretokenizer::run_metaspace(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const {
  const PretokenizerStep& what = steps_[step];
  const std::string& marker = what.marker;
  std::string& text = scratch[step].text;
  text.clear();
  const bool wanted = what.prepend == PretokenizerStep::Prepend::always ||
                      (what.prepend == PretokenizerStep::Prepend::first && piece.at_front);
  if (wanted && piece.text.front() != ' ' && !piece.text.starts_with(marker)) text = marker;
  std::size_t done = 0;
  for (std::size_t at = piece.text.find(' '); at != std::string_view::npos; at = piece.text.find(' ', done)) {
    text.append(piece.text, done, at - done).append(marker);
    done = at + 1;
  }
  text.append(piece.text, done);
  const Piece marked{text, piece.at_front};
  if (!what.cuts) return run(step + 1, marked, scratch, sink);
  std::size_t begin = 0;
  for (std::size_t at = text.find(marker, 1); at != std::string::npos; at = text.find(marker, begin + 1)) {
    run(step + 1, marked.part(begin, at), scratch, sink);
    begin = at;
  }
  run(step + 1, marked.part(begin, text.size()), scratch, sink);
}

}  // namespace trireme::data
