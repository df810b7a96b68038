// Cuts text into words, inside which BPE merges.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/pretokenizer_regex.h"

namespace trireme::data {

// What becomes of a match and of the text between matches (the names of tokenizer.json).
enum class SplitBehavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// One step; steps apply one after the other, each to every piece that the one before made.
struct PretokenizerStep {
  enum class Kind : std::uint8_t {
    prefix_space,  // a space before a piece that has none
    split,         // by a regex
    digits,        // the same for \p{N}, by the tables of Rust's char::is_numeric
    punctuation,   // the same for ASCII's symbols and \p{P}, by the tables of Unicode 8
    metaspace,     // each space becomes the marker, and each marker begins a piece
  };
  enum class Prepend : std::uint8_t { never, first, always };
  Kind kind = Kind::split;
  std::string pattern;  // split: a regex
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;               // what lies between the matches counts as the match
  std::string marker;                // metaspace: one character
  Prepend prepend = Prepend::never;  // metaspace: a marker before pieces that have none; first: that begin the text
  bool cuts = true;                  // metaspace: false where markers begin no piece
  std::string place;                 // for errors
};

class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void word(std::string_view bytes) = 0;  // never empty; valid during the call only
};

// Immutable and thread-safe; each thread needs a Scratch.
class Pretokenizer {
 public:
  explicit Pretokenizer(std::vector<PretokenizerStep> steps);  // Error TR4108 for a bad regex

  struct StepScratch {
    std::optional<SplitRegex::Scratch> regex;
    std::string text;  // piece with its prefix space, with markers, or with stand-ins
    std::vector<Match> pieces;
  };
  using Scratch = std::vector<StepScratch>;
  Scratch make_scratch() const;

  // Words in order of the text, which must be valid UTF-8. at_front: it begins the whole text, not a part of it behind
  // an added token. Error TR4111 as SplitRegex::find.
  void split(std::string_view text, bool at_front, Scratch& scratch, WordSink& sink) const {
    run(0, {text, at_front}, scratch, sink);
  }

 private:
  std::vector<PretokenizerStep> steps_;
  std::vector<std::optional<SplitRegex>> regexes_;
  struct Piece {
    std::string_view text;
    bool at_front;
    Piece part(std::size_t begin, std::size_t end) const {
      return {text.substr(begin, end - begin), at_front && begin == 0};
    }
  };
  void run(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const;
  void run_isolated(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const;
  void run_merging(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const;
  void run_metaspace(std::size_t step, Piece piece, Scratch& scratch, WordSink& sink) const;
};

}  // namespace trireme::data
