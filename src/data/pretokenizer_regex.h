// A compiled split regex: the matches in a text, one after the other.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::data {

struct Match {
  std::size_t begin, end;
};

class SplitRegex {
 public:
  // pattern in the dialect of tokenizer.json; Error TR4108 where it is invalid or not supported.
  SplitRegex(std::string_view pattern, const std::string& place);
  SplitRegex(SplitRegex&&) noexcept;
  ~SplitRegex();

  // What one thread needs to match; costs a few allocations.
  class Scratch {
   public:
    explicit Scratch(const SplitRegex& regex);
    Scratch(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class SplitRegex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // The first match that begins at `from` or later. Text must be valid UTF-8. False where there is none. Error TR4111
  // where the engine gave up: the pattern tries too many ways (its work is bounded for each match).
  bool find(std::string_view text, std::size_t from, Scratch& scratch, Match& match) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The matches of a text, as tokenizers iterates: an empty match right after another match does not count.
class RegexMatches {
 public:
  // All three must outlive this.
  RegexMatches(const SplitRegex& regex, std::string_view text, SplitRegex::Scratch& scratch)
      : regex_(regex), text_(text), scratch_(scratch) {}
  bool next(Match& match);  // false where there is none any more

 private:
  const SplitRegex& regex_;
  std::string_view text_;
  SplitRegex::Scratch& scratch_;
  std::size_t from_ = 0, last_end_ = 0;
  bool matched_ = false;
};

}  // namespace trireme::data
