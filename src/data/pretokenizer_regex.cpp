#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/pretokenizer_regex.h"

#include <pcre2.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "data/pretokenizer_pattern.h"
#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

constexpr std::uint32_t kMatchLimit = 2'000'000;
constexpr std::uint32_t kHeapLimitKib = 64u << 10;
constexpr std::size_t kJitStackStart = 64u << 10;
constexpr std::size_t kJitStackMax = 8u << 20;

struct Deleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Deleter>;

std::string engine_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR as_units(const char* text) {
  return reinterpret_cast<PCRE2_SPTR>(text);
}

}  // namespace

struct SplitRegex::Impl {
  std::string place, pattern;
  Owned<pcre2_code> code;
  bool has_jit = false;
};

struct SplitRegex::Scratch::Impl {
  Owned<pcre2_match_data> data;
  Owned<pcre2_match_context> context;
  Owned<pcre2_jit_stack> stack;
};

SplitRegex::SplitRegex(std::string_view pattern, const std::string& place) : impl_(std::make_unique<Impl>()) {
  impl_->place = place;
  impl_->pattern = pattern.substr(0, 200);
  const std::string translated = translate_pattern(pattern, place);
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  TRIREME_CHECK(context != nullptr, "no memory for a regex");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code.reset(pcre2_compile(as_units(translated.data()), translated.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get()));
  if (!impl_->code) {
    throw Error(4108, place, "the regex is invalid: " + engine_message(error) + ": " + impl_->pattern,
                "correct the pattern in the tokenizer's file");
  }
  impl_->has_jit = pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex::~SplitRegex() = default;

SplitRegex::Scratch::Scratch(const SplitRegex& regex) : impl_(std::make_unique<Impl>()) {
  impl_->data.reset(pcre2_match_data_create_from_pattern(regex.impl_->code.get(), nullptr));
  impl_->context.reset(pcre2_match_context_create(nullptr));
  impl_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
  TRIREME_CHECK(impl_->data && impl_->context && impl_->stack, "no memory to match a regex");
  pcre2_set_match_limit(impl_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl_->context.get(), kHeapLimitKib);
  pcre2_jit_stack_assign(impl_->context.get(), nullptr, impl_->stack.get());
}

SplitRegex::Scratch::Scratch(Scratch&&) noexcept = default;
SplitRegex::Scratch::~Scratch() = default;

bool SplitRegex::find(std::string_view text, std::size_t from, Scratch& scratch, Match& match) const {
  const auto* subject = as_units(text.data());
  auto* data = scratch.impl_->data.get();
  auto* context = scratch.impl_->context.get();
  const int result =
      impl_->has_jit ? pcre2_jit_match(impl_->code.get(), subject, text.size(), from, 0, data, context)
                     : pcre2_match(impl_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    throw Error(4111, impl_->place,
                "the split regex gave up at byte " + std::to_string(from) + " of a text of " +
                    std::to_string(text.size()) + " bytes: " + engine_message(result) + ": " + impl_->pattern,
                "the pattern tries too many ways on this text; it needs possessive quantifiers or another tokenizer");
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
  match = {ends[0], ends[1]};
  return true;
}

bool RegexMatches::next(Match& match) {
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

}  // namespace trireme::data
