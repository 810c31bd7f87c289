#pragma once
/// Strict JSON, and Hjson: what the document says or a problem with file, JSON pointer and line.
/// Nothing outside this header reads a value out of parsed input by other means: nlohmann alone
/// would accept duplicate keys, turn 4.7 into 4 and −1 into 18446744073709551615.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"

namespace dstune::json {

/// Keys keep the order of the document: names and the order of experiments follow it.
using Value = nlohmann::ordered_json;

class Node;
class TreeBuilder;

// A value's list of members is a function of both (archive.hpp). A writer takes the value const.
class Writer;
class Reader;
template <class Archive, class T>
using Of = std::conditional_t<Archive::is_reading, T, const T>;

/// The line of a value and of those inside it, in the order of the document.
struct LineTree {
  int line = 0;
  std::vector<LineTree> inside = {};
};

/// How large a document may be; a larger one is no configuration.
struct ReadLimits {
  std::size_t bytes = max_input_bytes;
  std::size_t values = 1'000'000;  ///< keys of objects and elements of lists
};
inline constexpr ReadLimits no_limits{std::numeric_limits<std::size_t>::max(),
                                      std::numeric_limits<std::size_t>::max()};

/// The file in which a value is written, and its place there.
struct Place {
  std::string file;
  std::string pointer;
  int line = 0;
};
/// Places by the JSON pointers of values.
using Places = std::map<std::string, Place>;

/// A parsed document: its values and the line of each.
class Document {
 public:
  /// JSON in which comments (// and /* */) are accepted. Throws InputError: syntax (with the line),
  /// duplicate keys (all of them, up to a hundred), more values than the limit.
  static Document parse(std::string_view text, std::string file, const ReadLimits& limits = {});
  /// Hjson (hjson.github.io/syntax.html), of which such JSON is a part; throws likewise. A document
  /// that is empty, or nothing but one text without quotes, is refused.
  static Document parse_hjson(std::string_view text, std::string file,
                              const ReadLimits& limits = {});
  /// CBOR (RFC 8949), as ranks exchange it: values without lines. Throws InputError for bytes that
  /// are none.
  static Document parse_cbor(std::span<const std::byte> bytes, std::string file);
  /// JSON, else Hjson. A text that is neither is refused as the one that it looks like.
  static Document parse_either(std::string_view text, std::string file,
                               const ReadLimits& limits = {});
  /// Values that were made here: without lines, or with those of another notation.
  static Document of(Value root, std::string file, LineTree lines = {});
  /// JSON or Hjson, whatever the file's name is; one that ends in .hjson is refused as Hjson.
  /// Throws InputError where the file is missing, unreadable, no regular file, or too large, too.
  static Document read(const std::string& path, const ReadLimits& limits = {});
  /// A document that was made of this one: `places` has the place of each value that is not where
  /// this document has it. A value inside such a one has the same place, unless it has its own.
  [[nodiscard]] Document with(Value root, Places places) const;

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const Value& root() const { return root_; }
  /// The line of the value at a JSON pointer; of its nearest ancestor where it has none. 0 where
  /// values have no lines.
  [[nodiscard]] int line(const std::string& pointer) const { return place(pointer).line; }
  /// The place of a value in the file that the user wrote.
  [[nodiscard]] Place place(const std::string& pointer) const;
  /// A problem of a node, which has this document's pointer, at the place in that file. Others
  /// stay.
  [[nodiscard]] Problem located(Problem problem) const;
  /// A problem at the place of a value, located.
  [[nodiscard]] Problem problem(const std::string& pointer, std::string message) const;
  [[nodiscard]] Node node() const;

 private:
  [[nodiscard]] int own_line(std::string_view pointer) const;
  static Document read_by(void (*reader)(std::string_view, TreeBuilder&), std::string_view text,
                          std::string file, const ReadLimits& limits);

  std::string file_;
  Value root_;
  LineTree lines_;
  Places places_;
};

/// Collects problems so that a user sees all of them at once.
class Problems {
 public:
  void add(Problem problem) { problems_.push_back(std::move(problem)); }
  [[nodiscard]] bool empty() const { return problems_.empty(); }
  [[nodiscard]] const std::vector<Problem>& all() const { return problems_; }
  /// Throws InputError with all of them where there is one.
  void check() const;

 private:
  std::vector<Problem> problems_;
};

/// A place in a document. Reading a wrong type adds a problem and returns nothing. Cheap to copy;
/// the document outlives it.
class Node {
 public:
  Node(const Document& document, const Value& value, std::string pointer)
      : document_(&document), value_(&value), pointer_(std::move(pointer)) {}

  [[nodiscard]] const Value& value() const { return *value_; }
  [[nodiscard]] const std::string& pointer() const { return pointer_; }
  [[nodiscard]] const Document& document() const { return *document_; }
  [[nodiscard]] int line() const { return document_->line(pointer_); }

  /// A problem at this place, not located: its pointer is the document's.
  [[nodiscard]] Problem problem(std::string message) const;

  [[nodiscard]] bool is_null() const { return value_->is_null(); }
  [[nodiscard]] bool is_object() const { return value_->is_object(); }
  [[nodiscard]] bool is_array() const { return value_->is_array(); }
  [[nodiscard]] bool is_string() const { return value_->is_string(); }

  /// Members in document order, or elements.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::optional<Node> find(const std::string& key) const;
  [[nodiscard]] std::vector<Node> elements() const;

  std::optional<bool> boolean(Problems&) const;
  /// An integer within [low, high]; an integral float such as 5e8 counts, 4.7 does not.
  std::optional<std::int64_t> integer(
      Problems&, std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  std::optional<double> number(Problems&, double low = -std::numeric_limits<double>::infinity(),
                               double high = std::numeric_limits<double>::infinity()) const;
  std::optional<std::string> string(Problems&) const;
  /// Problem where the value is not an object.
  bool expect_object(Problems&) const;
  /// A problem for each key that is not in `known`, naming the nearest known one where one is near.
  void refuse_unknown_keys(Problems&, const std::vector<std::string_view>& known) const;

 private:
  const Document* document_;
  const Value* value_;
  std::string pointer_;
};

/// A value as one line of ASCII, for stdout: no text in it reaches a terminal as it is, and bytes
/// that are no UTF-8 are replaced.
std::string ascii_text(const Value&);
/// Appends a key or index to a JSON pointer, escaped ("~0", "~1").
std::string append_pointer(const std::string& pointer, std::string_view key);
/// "an integer", "a list", … : a value's type in words, for messages.
std::string type_words(const Value&);
/// The nearest of `known` to `word`, for "did you mean": within two edits, within one where either
/// has fewer than six letters, and sharing a letter. Nothing where none is as near.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string_view>& known);

}  // namespace dstune::json
