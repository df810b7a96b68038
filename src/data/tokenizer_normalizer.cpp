#include "data/tokenizer_normalizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/pretokenizer_unicode.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

using Kind = NormalizerStep::Kind;

// Beyond this, only a file that means harm grows a text.
constexpr std::size_t kMaxGrowth = 32;
constexpr std::size_t kAlwaysAllowed = 256;

std::string_view strip(std::string_view text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  while (left && begin < end && is_white_space(code_point_at(text, begin))) {
    begin += utf8_length(static_cast<unsigned char>(text[begin]));
  }
  while (right && begin < end) {
    const std::size_t previous = previous_code_point(text, end);
    if (!is_white_space(code_point_at(text, previous))) break;
    end = previous;
  }
  return text.substr(begin, end - begin);
}

std::size_t first_length(std::string_view text) {
  return text.empty() ? 0 : utf8_length(static_cast<unsigned char>(text[0]));
}

// Whether a match at the front leaves its replacement at the front, as the offsets of Hugging Face's have it: where all
// that it takes stands for one character of the input. front: bytes that do.
bool front_survives(std::string_view match, std::string_view content, std::size_t front) {
  if (match.empty()) return true;
  return !content.empty() && match.size() <= std::max(front, first_length(match));
}

// What such a replacement puts before a text, later steps of Hugging Face's then double or lose.
void refuse_empty_matches(const SplitRegex& regex, const NormalizerStep& step) {
  SplitRegex::Scratch scratch(regex);
  Match match{};
  if (!regex.find("", 0, scratch, match)) return;
  throw Error(4108, step.place, "the regex to be replaced matches empty text: " + step.pattern.substr(0, 200));
}

}  // namespace

Normalizer::Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {
  for (const NormalizerStep& step : steps_) {
    std::optional<SplitRegex>& regex = regexes_.emplace_back();
    if (step.kind == Kind::replace && step.is_regex) {
      regex.emplace(step.pattern, step.place);
      refuse_empty_matches(*regex, step);
    }
    TRIREME_CHECK(step.kind != Kind::replace || !step.pattern.empty(), "an empty pattern");
  }
}

Normalizer::Scratch Normalizer::make_scratch() const {
  Scratch scratch(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].kind == Kind::form) scratch[i].form.emplace(steps_[i].form);
    if (regexes_[i]) scratch[i].regex.emplace(*regexes_[i]);
  }
  return scratch;
}

Normalizer::Result Normalizer::run(std::string_view text, Scratch& scratch) const {
  const std::size_t limit = kMaxGrowth * text.size() + kAlwaysAllowed;
  Result result{text, true, first_length(text)};
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Result next = run_step(i, result, limit, scratch[i]);
    check_size(i, next.text.size(), limit);
    result = {next.text, result.keeps_front && next.keeps_front, next.front};
  }
  return result;
}

void Normalizer::check_size(std::size_t step, std::size_t size, std::size_t limit) const {
  if (size <= limit) return;
  throw Error(4111, steps_[step].place, "the normalizer makes a text more than 32 times as long",
              "no tokenizer does that; fetch the file anew");
}

Normalizer::Result Normalizer::run_step(std::size_t step, const Result& before, std::size_t limit,
                                        StepScratch& own) const {
  const NormalizerStep& what = steps_[step];
  const std::string_view text = before.text;
  switch (what.kind) {
    case Kind::form: return {own.form->normalize(text), true};
    case Kind::lowercase: {
      own.text.clear();
      append_lower_case(text, own.text);
      return {own.text, true};
    }
    case Kind::strip: {
      const std::string_view rest = strip(text, what.left, what.right);
      return {rest, rest.data() == text.data(), rest.data() == text.data() ? before.front : 0};
    }
    case Kind::prepend: {
      if (text.empty()) return {text, true};
      check_size(step, what.content.size() + text.size(), limit);
      own.text.assign(what.content).append(text);
      return {own.text, true};
    }
    case Kind::replace: break;
  }
  return replace(step, before, limit, own);
}

Normalizer::Result Normalizer::replace(std::size_t step, const Result& before, std::size_t limit,
                                       StepScratch& own) const {
  const NormalizerStep& what = steps_[step];
  const std::string_view text = before.text;
  std::size_t front = before.front;
  std::size_t done = 0;
  bool keeps_front = true;
  own.text.clear();
  const auto take = [&](std::size_t begin, std::size_t end) {
    if (begin == 0) {
      keeps_front = keeps_front && front_survives(text.substr(0, end), what.content, before.front);
      front = what.content.size();
    } else if (done == 0) {
      front = std::min(front, begin);
    }
    check_size(step, own.text.size() + what.content.size(), limit);
    own.text.append(text, done, begin - done).append(what.content);
    done = end;
  };
  if (regexes_[step]) {
    RegexMatches matches(*regexes_[step], with_stand_ins(text, CharacterTables::regex, own.stand_ins), *own.regex);
    for (Match match{}; matches.next(match);) take(match.begin, match.end);
  } else {
    for (std::size_t at = text.find(what.pattern); at != std::string_view::npos; at = text.find(what.pattern, done)) {
      take(at, at + what.pattern.size());
    }
  }
  if (done == 0 && own.text.empty()) return {text, true, before.front};
  own.text.append(text, done);
  return {own.text, keeps_front, front};
}

}  // namespace trireme::data
