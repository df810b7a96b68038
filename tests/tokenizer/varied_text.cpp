#include "tokenizer/varied_text.h"

#include <array>
#include <cstring>
#include <iterator>
#include <span>

#include "data/tokenizer_text.h"

namespace trireme::data {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t bound) { return next() % bound; }
  std::size_t between(std::size_t low, std::size_t high) { return low + below(high - low + 1); }
  template <class T, std::size_t N>
  const T& pick(const T (&items)[N]) {
    return items[below(N)];
  }

 private:
  std::uint64_t state_;
};

struct Range {
  char32_t first, last;
};

constexpr std::string_view kWords[] = {
    "the",     "of",      "and",     "to",      "in",       "ship",   "oars",      "three",   "banks",   "harbour",
    "she",     "said",    "Athens",  "wind",    "against",  "water",  "naïve",     "façade",  "Übermut", "señor",
    "because", "through", "whether", "strange", "TRIREME",  "OARS",   "Keel",      "O'Brien", "résumé",  "coöperate",
    "it",      "is",      "a",       "token",   "gradient", "tensor", "reduction", "bucket",  "e.g.",    "U.S.A."};
constexpr std::string_view kContractions[] = {
    "it's",  "don't",       "we're",     "I've",    "I'm",       "you'll", "he'd",  "IT'S", "DON'T",
    "WE'RE", "I'VE",        "I'M",       "YOU'LL",  "HE'D",      "it'S",   "We'Re", "'tis", "'S",
    "s's's", "rock'n'roll", "it\u2019s", "'\u017F", "a'\u017Fx", "'lL",    "'Ve"};
constexpr std::string_view kCode[] = {"for (int i = 0; i < n; ++i) {\n    sum += values[i];\n}\n",
                                      "def f(x, *args):\n\treturn {k: v for k, v in args if x != 0}\n",
                                      "#include <vector>\n\n\nstd::vector<float> w(1'000'000, 0.0f);\n",
                                      "if (!(a && b) || c->d[0xFF] == 1e-9) return nullptr;  // ???\r\n",
                                      "SELECT * FROM t WHERE id >= 42 AND name LIKE '%x%';\n\n",
                                      "<div class=\"a b\">&nbsp;</div>\n        <p>\n                text</p>\n",
                                      "$ make -j$(nproc) 2>&1 | tee log.txt\n",
                                      "{\"key\": [1, 2.5, -3e+10, null, true], \"\\u00e9\": \"\\n\"}\n"};
constexpr std::string_view kEmoji[] = {"😀",
                                       "👍🏽",
                                       "👩‍👩‍👧‍👦",
                                       "🏳️‍🌈",
                                       "🇬🇷",
                                       "👨🏿‍🚀",
                                       "❤️",
                                       "✈︎",
                                       "1️⃣",
                                       "🧑‍💻",
                                       "🫠",
                                       "🏴󠁧󠁢󠁳󠁣󠁴󠁿",
                                       "☕",
                                       "🪿",
                                       "🛜",
                                       "🫨"};
constexpr std::string_view kSpecial[] = {
    "<|endoftext|>",  "<|im_start|>", "<|im_end|>",    "<|im_start|>user\n",
    "<|fim_prefix|>", "<|endoftext|", "<|im_",         "<|",
    "<tool_call>",    "</tool_call>", "<|ENDOFTEXT|>", "<|vision_pad|><|image_pad|>",
    "< |endoftext|>", "[PAD]",        "<s>",           "</s>",
    "[MASK]",         "<word>",       "<l>",           "<r>",
    "<unk>",          "<bos>",        "<eos>",         "<start_of_turn>user\n",
    "[INST]",         "[/INST] ",     "<0x41>",        "<|begin_of_text|><|start_header_id|>",
    "\u2581",         "\u2581the",    " \u2581 ",      "\u2581\u2581\u2581"};
constexpr std::string_view kInvalid[] = {"\x80",
                                         "\xBF",
                                         "\xC0\x80",
                                         "\xC1\xBF",
                                         "\xC3",
                                         "\xE2\x82",
                                         "\xE2",
                                         "\xE0\x80\x80",
                                         "\xE0\x9F\xBF",
                                         "\xED\xA0\x80",
                                         "\xED\xBF\xBF",
                                         "\xF0\x9F\x98",
                                         "\xF0\x9F",
                                         "\xF0",
                                         "\xF0\x80\x80\x80",
                                         "\xF4\x90\x80\x80",
                                         "\xF5\x80\x80\x80",
                                         "\xFF",
                                         "\xFE\xFF",
                                         "\xF8\x88\x80\x80\x80",
                                         "\xC3\x28",
                                         "\xE2\x28\xA1",
                                         "\xF0\x28\x8C\xBC",
                                         "\xE2\x82\xE2\x82\xAC"};
constexpr char32_t kSpaces[] = {' ',    ' ',    ' ',    '\t',   '\n',   '\r',   0x0B,   0x0C,   0x85,   0xA0,
                                0x1680, 0x2000, 0x2002, 0x2003, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F,
                                0x3000, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0x1C,   0x1D,   0x1F};
constexpr Range kMarks[] = {{0x300, 0x36F},   {0x483, 0x487},   {0x591, 0x5BD},   {0x64B, 0x65F},     {0x93C, 0x94D},
                            {0x9BE, 0x9CD},   {0xE38, 0xE3A},   {0x1AB0, 0x1ACE}, {0x1DC0, 0x1DFF},   {0x20D0, 0x20F0},
                            {0x302A, 0x302F}, {0x3099, 0x309A}, {0xFE20, 0xFE2F}, {0x1D165, 0x1D169}, {0x8CA, 0x8E1}};
constexpr Range kComposed[] = {{0xC0, 0x24F},      {0x1E00, 0x1EFF},  {0x1F00, 0x1FFF}, {0x400, 0x45F},
                               {0x958, 0x95F},     {0x9DC, 0x9DF},    {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
                               {0xFB1D, 0xFB4E},   {0x2126, 0x212B},  {0x304C, 0x30FE}, {0x2F800, 0x2FA1D},
                               {0x1109A, 0x110AB}, {0x1D15E, 0x1D164}};
constexpr Range kScripts[] = {{0x4E00, 0x9FFF},   {0x3040, 0x30FF},   {0x4E00, 0x9FA5},   {0x600, 0x6FF},
                              {0xAC00, 0xD7A3},   {0x1100, 0x11FF},   {0x900, 0x97F},     {0xE00, 0xE7F},
                              {0x370, 0x3FF},     {0x400, 0x4FF},     {0x590, 0x5FF},     {0x980, 0x9FF},
                              {0xB80, 0xBFF},     {0x20000, 0x2A6DF}, {0x1F300, 0x1FAFF}, {0x2190, 0x2BFF},
                              {0x1D400, 0x1D7FF}, {0x10000, 0x1FFFF}, {0x31350, 0x323AF}, {0x660, 0x669},
                              {0x966, 0x96F},     {0x2150, 0x218B},   {0xFF00, 0xFFEF},   {0x1C80, 0x1C8A},
                              {0x11DD8, 0x11DEF}, {0x16FF0, 0x16FFF}};

void append(char32_t code_point, std::string& out) {
  std::array<char, 4> bytes;
  out.append(bytes.data(), write_utf8(code_point, bytes.data()));
}

char32_t from_ranges(std::span<const Range> ranges, Random& random) {
  const Range range = ranges[random.below(ranges.size())];
  return range.first + static_cast<char32_t>(random.below(range.last - range.first + 1));
}

char32_t any_code_point(Random& random) {
  const auto c = static_cast<char32_t>(random.below(random.below(4) == 0 ? 0x110000 : 0x20000));
  return c >= 0xD800 && c <= 0xDFFF ? 0xFFFD : c;
}

void append_digits(Random& random, std::string& out) {
  const std::size_t count = random.between(1, random.below(8) == 0 ? 40 : 6);
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(static_cast<char>('0' + random.below(10)));
    if (random.below(9) == 0) out.push_back(random.pick({',', '.', '-', ' ', 'e'}));
  }
}

void append_marked(Random& random, std::string& out) {
  const bool composed = random.below(2) == 0;
  append(composed ? from_ranges(kComposed, random) : static_cast<char32_t>('a' + random.below(26)), out);
  for (std::size_t i = random.below(5); i > 0; --i) append(from_ranges(kMarks, random), out);
}

void append_run(std::size_t count, const auto& one) {
  for (std::size_t i = 0; i < count; ++i) one();
}

void append_prose(Random& random, std::string& out) {
  append_run(random.between(3, 30), [&] {
    out += random.below(12) == 0 ? random.pick(kContractions) : random.pick(kWords);
    out += random.pick({" ", " ", " ", " ", " ", ", ", ". ", "; ", "\n", " - ", "! ", "?\n\n"});
  });
}

void append_piece(Random& random, std::string& out) {
  switch (random.below(16)) {
    case 0: append_run(random.between(1, 8), [&] { out.append(random.pick(kContractions)).push_back(' '); }); return;
    case 1: out += random.pick(kCode); return;
    case 2: append_digits(random, out); return;
    case 3: append_run(random.between(1, 5), [&] { out += random.pick(kEmoji); }); return;
    case 4: append_run(random.between(1, 12), [&] { append_marked(random, out); }); return;
    case 5: append_run(random.between(1, 20), [&] { append(random.pick(kSpaces), out); }); return;
    case 6: out.append(random.between(1, 40), random.pick({' ', '\n', '\t', '=', '-', '#', 'a', '0'})); return;
    case 7: append_run(random.between(1, 3), [&] { out += random.pick(kSpecial); }); return;
    case 8: append_run(random.between(1, 3), [&] { out += random.pick(kInvalid); }); return;
    case 9: append_run(random.between(1, 10), [&] { append(any_code_point(random), out); }); return;
    case 10: append_run(random.between(1, 6), [&] { append(static_cast<char32_t>(random.below(0x20)), out); }); return;
    case 11:
    case 12: {  // one script at a time, as text is
      const Range script = random.pick(kScripts);
      append_run(random.between(2, 30), [&] { append(from_ranges(std::span(&script, 1), random), out); });
      return;
    }
    default: append_prose(random, out); return;
  }
}

}  // namespace

std::vector<std::string> varied_documents(std::uint64_t seed, std::size_t bytes) {
  Random random(seed);
  std::vector<std::string> documents = {"", " ", "\n", "a", "\xFF", "<|endoftext|>"};
  for (std::size_t total = 0; total < bytes; total += documents.back().size()) {
    std::string document;
    const std::size_t wanted = random.between(1, 8000);
    while (document.size() < wanted) {
      append_piece(random, document);
      if (random.below(3) == 0) document.push_back(' ');
    }
    documents.push_back(std::move(document));
  }
  return documents;
}

std::string to_records(const std::vector<std::string>& documents) {
  std::string bytes;
  for (const std::string& document : documents) {
    const auto size = static_cast<std::uint32_t>(document.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size).append(document);
  }
  return bytes;
}

std::vector<std::string> from_records(std::string_view bytes) {
  std::vector<std::string> documents;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof size);
    documents.emplace_back(bytes.substr(at + sizeof size, size));
    at += sizeof size + size;
  }
  return documents;
}

std::string random_bytes(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next());
  return bytes;
}

}  // namespace trireme::data
