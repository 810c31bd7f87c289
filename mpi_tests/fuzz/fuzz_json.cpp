// The first byte chooses JSON ('j') or Hjson, the rest is the text: it is a document or an
// InputError whose problems a person can read. What a document says is checked against itself, and
// JSON against the reader of Hjson.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"

namespace {

using dstune::require;
using dstune::json::Document;
using dstune::json::Value;

enum class Notation { json, hjson };

int last_line(std::string_view text) {
  return 1 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

bool is_readable(std::string_view message) {
  return !message.empty() && std::none_of(message.begin(), message.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
}

std::optional<Document> parse(Notation notation, std::string_view text) {
  try {
    return notation == Notation::json ? Document::parse(text, "f")
                                      : Document::parse_hjson(text, "f");
  } catch (const dstune::InputError& error) {
    require(!error.problems().empty(), "a refusal says why");
    for (const dstune::Problem& problem : error.problems()) {
      require(problem.line >= 1 && problem.line <= last_line(text), "a problem's line is one");
      require(is_readable(problem.message), "a problem can be read");
    }
    return std::nullopt;
  }
}

/// Every value has a line of the text, none before that of what holds it; `same`, where given, has
/// the same lines.
void check_lines(const Value& value, const std::string& pointer, int low, int high,
                 const Document& document, const Document* same) {
  const int line = document.line(pointer);
  require(line >= low && line <= high, "a value's line is one, in order");
  if (same != nullptr) require(same->line(pointer) == line, "both readers see the same line");
  std::size_t index = 0;
  for (const auto& item : value.items()) {
    if (!value.is_structured()) break;
    const std::string key = value.is_array() ? std::to_string(index++) : item.key();
    check_lines(item.value(), dstune::json::append_pointer(pointer, key), line, high, document,
                same);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Notation notation = data[0] == 'j' ? Notation::json : Notation::hjson;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::optional<Document> document = parse(notation, text);
  if (!document) return 0;

  // A scalar with a comment may be a key to Hjson: 5//a:b.
  std::optional<Document> as_hjson;
  if (notation == Notation::json && document->root().is_structured()) {
    as_hjson = parse(Notation::hjson, text);
    require(as_hjson.has_value(), "JSON is Hjson");
    require(as_hjson->root().dump() == document->root().dump(), "JSON means the same as Hjson");
  }
  check_lines(document->root(), "", 1, last_line(text), *document, as_hjson ? &*as_hjson : nullptr);

  for (const int indent : {-1, 1}) {
    const std::string dump = document->root().dump(indent);
    for (const Notation again : {Notation::json, Notation::hjson}) {
      const std::optional<Document> reread = parse(again, dump);
      require(reread.has_value(), "what is written is read");
      require(reread->root() == document->root(), "what is read is what was written");
      require(reread->root().dump(indent) == dump, "to the last digit");
    }
  }
  return 0;
}
