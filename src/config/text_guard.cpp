#include "config/text_guard.h"

#include <cstdint>

#include "base/error.h"

namespace trireme::config {
namespace {

// Length of the well-formed UTF-8 sequence at the start of text, 0 where there is none (overlong forms, surrogates and
// code points above U+10FFFF are not well-formed).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  std::uint32_t code = lead & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  if (length == 3 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) return 0;
  if (length == 4 && (code < 0x10000 || code > 0x10FFFF)) return 0;
  return length;
}

// The offset of a tab in the indentation of the line that text starts with; npos where there is none or where the line
// has no content.
std::size_t indenting_tab(std::string_view text) {
  const std::size_t content = text.find_first_not_of(" \t");
  if (content == std::string_view::npos || std::string_view("\r\n#").find(text[content]) != std::string_view::npos) {
    return std::string_view::npos;
  }
  return text.substr(0, content).find('\t');
}

}  // namespace

void check_text(std::string_view text, const PlaceOf& place_of, Indentation indentation) {
  if (text.size() > kMaxDocumentBytes) {
    throw Error(2108, place_of(Mark{}),
                "the configuration is larger than " + std::to_string(kMaxDocumentBytes >> 20) + " MiB",
                "is this the right file? Data is named by its path (data.path)");
  }
  Mark mark;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const auto refuse = [&](const std::string& what, const std::string& remedy) {
      throw Error(2108, place_of(mark), what, remedy);
    };
    if (mark.column == 1 && indentation == Indentation::spaces) {
      if (const std::size_t tab = indenting_tab(text.substr(i)); tab != std::string_view::npos) {
        mark.column += static_cast<int>(tab);
        refuse("a tab in the indentation", "indent by spaces: YAML gives tabs no width");
      }
    }
    const std::size_t length = sequence_length(text.substr(i));
    if (length == 0) refuse("bytes that are not UTF-8", "save the file as UTF-8");
    if (c == '\0') refuse("a NUL byte", "is this a text file?");
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F) {
      refuse("a control character (" + shown({&c, 1}) + ")", "remove it");
    }
    i += length;
    ++mark.column;
    if (c == '\n') mark = {mark.line + 1, 1};
  }
}

}  // namespace trireme::config
