#pragma once
/// Tables of the keys of a document: one form of row, and one reader. The DeepSpeed config
/// (settings.hpp) and the sections that are not DeepSpeed's are such tables. Their rows are data:
/// src/core/keys/keys.json. Reading, ranges, refusals, the reference and the schema follow from
/// them. Local.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <variant>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/deepspeed_version.hpp"

namespace dstune {

enum class KnobType { boolean, integer, number, text, object, list };

/// The effect of a key on the step that is measured here.
enum class KnobEffect {
  measured,   ///< acts on the built-in step as on DeepSpeed's, at the stages of its row
  inert,      ///< changes nothing that is measured (logging, checkpoints, legacy paths)
  not_built,  ///< acts in DeepSpeed, not yet in the built-in step: one value is kept with a warning
  refused,    ///< any value but its default is refused by name
};

/// DeepSpeed's config looks at a value so, where no pydantic model reads it. Other code of
/// DeepSpeed's may fail with the values that the config passes on.
enum class KnobLook {
  none,     ///< passes it on; what asks for a flag takes Python's truth of it
  at_type,  ///< refuses what the row does not take
  members,  ///< asks whether a name is in it, which a text takes, too
  flag,     ///< takes true, false and integers
  truth,    ///< takes what is equal to true or false: 1 and 0.0, too
  number,   ///< takes numbers, true and false
  divided,  ///< the same, and what Python takes for false
  whole,    ///< makes an integer of it as Python's int() does: of 2.5 and "7", too
};

using KnobValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

/// The row's form in the releases before one; an empty text or no number: as it is now.
struct FormerRow {
  Version before{};
  std::string_view fallback{};
  std::optional<double> low{};
};

/// A row: a key, what it takes and for whom it is. The columns of keys.json have these names, and
/// `default` for `fallback`. A value that a row does not say is as here.
struct Key {
  std::string_view pointer{};  ///< JSON pointer in the document; "/*" at its end: every member of
                               ///< an object whose keys are the user's
  KnobType type = KnobType::boolean;
  std::string_view fallback = "null";  ///< the default, as JSON text
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double largest_here = std::numeric_limits<double>::infinity();  ///< DeepSpeed takes larger ones
  unsigned stages = 0b1111;  ///< bit s: it acts at ZeRO stage s
  KnobEffect effect = KnobEffect::inert;
  std::string_view member{};     ///< the value becomes TrainingConfig's member of this name
  std::string_view acts_with{};  ///< the effects of this member depend on each other
  bool grows_memory = false;     ///< more needs no less memory
  bool is_name = false;          ///< a number whose values are told apart only
  std::string_view help{};
  std::string_view choices{};  ///< text: the accepted words, separated by '|'
  std::string_view pattern{};  ///< text (object: its keys): what is taken, for the schema
  std::string_view hint{};     ///< refused: what to write instead, where that is not the default

  // Other names, separated by '|'. The table has a row for each of them behind this one.
  std::string_view aliases{};
  std::string_view deprecated{};  ///< older ones
  std::string_view alias_of{};    ///< such a row: the pointer of the one that it is made from
  bool takes_all_names = false;   ///< two names at once are no contradiction

  // The releases of DeepSpeed that know the key; until: the first that does not, if there is one. A
  // row may have an older form before it, with other releases.
  Version since{}, until{};
  std::array<FormerRow, 2> former{};  ///< the oldest first

  bool any_case = false;           ///< choices: in capitals too
  bool of_texts = false;           ///< list: of texts, of `choices` where there are any
  bool is_partial = false;         ///< object: DeepSpeed reads more keys in it than have rows
  bool of_sections = false;        ///< object: its members are objects
  bool closed = false;             ///< object: keys without a row are refused
  bool model = false;              ///< object: closed, and its values are converted
  bool keeps_auto = false;         ///< model: "auto" is a value like others in it
  KnobLook look = KnobLook::none;  ///< objects: at_type
  std::string_view beside{};       ///< DeepSpeed looks at it, and needs it, where this key beside
                                   ///< it is true alone
  bool takes_null = true;          ///< null stands for the default; see also is_converted
  bool takes_auto = true;          ///< "auto" stands for the default
  bool takes_empty = true;         ///< text: "" too
  bool takes_flag = true;          ///< a converted number: from true, false and "7.0" too; a
                                   ///< text: from numbers, where pydantic 1 makes it
  bool takes_texts = true;         ///< a converted number: from texts too
  bool takes_float = true;         ///< an integer: 5e8 too
  bool takes_lone_text = false;    ///< a converted list: of one text, without brackets too
  bool is_listable = false;        ///< a list of such values is candidates
  bool candidates_are_given = false;  ///< null and "auto" are no candidates
  bool is_required = false;           ///< its section can not do without it
  bool is_alone = false;              ///< nothing stands beside it in its section
  std::string_view beside_flag{};     ///< a flag in place of its section: the key beside that
  std::string_view flag_member{};     ///< object: true and false stand for one with this member, 1
                                      ///< or 0
  std::string_view only_with{};       ///< "type=replay": the word of a key beside it that it
                                      ///< belongs to
  std::string_view open_with{};       ///< object: "type=plugin": with this word inside further keys
                                      ///< are the user's, and none belongs to another word
  std::string_view needs{};          ///< object: a key that DeepSpeed takes out of it, there or not
  std::string_view closed_beside{};  ///< object: "type=a|b": closed beside such a word

  [[nodiscard]] bool acts_at(int stage) const { return (stages >> stage & 1U) != 0; }
};

/// The rows of a table of keys.json: deepspeed, autotuning or dstune.
[[nodiscard]] const std::vector<Key>& key_rows(const std::string& table);

/// An example of a key in keys.json: its value, and the rest of the document that it needs. Both
/// are null where there is none.
struct KeyExample {
  json::Value value{}, with{};
};
[[nodiscard]] KeyExample example_of(std::string_view pointer);

/// A text that lives as long as the program; not to be called by two threads at once.
[[nodiscard]] std::string_view kept(std::string text);

/// The value becomes the field's, which may be a narrower integer, optional, or an enumeration by
/// its text; an integer becomes that of a number, too.
template <class Field>
void assign(Field& field, const KnobValue& value) {
  if constexpr (requires { field.has_value(); })
    assign(field.emplace(), value);
  else if constexpr (std::is_enum_v<Field>)
    field = from_text<Field>(std::get<std::string>(value)).value_or(field);
  else if constexpr (std::is_same_v<Field, bool> || !std::is_arithmetic_v<Field>)
    field = std::get<Field>(value);
  else if (std::is_integral_v<Field> || std::holds_alternative<std::int64_t>(value))
    field = static_cast<Field>(std::get<std::int64_t>(value));
  else
    field = static_cast<Field>(std::get<double>(value));
}

/// Python's truth of a value: false of 0, "", null, [] and {}.
[[nodiscard]] bool is_true(const json::Value& value);

/// The last part of a pointer, and what stands before its '/'.
[[nodiscard]] std::string_view last_key(std::string_view pointer);
[[nodiscard]] std::string_view parent_of(std::string_view pointer);
/// "zero_optimization.stage"
[[nodiscard]] std::string dotted(std::string_view pointer);

/// The words that a row's `choices` lists.
[[nodiscard]] std::vector<std::string_view> choices_of(std::string_view choices);
/// The words that a key of a table takes, by its first row that has any.
[[nodiscard]] std::vector<std::string_view> choices_of(const std::string& table,
                                                       std::string_view pointer);
/// The one of them that `word` is, in capitals too where `any_case`, as it is listed.
[[nodiscard]] std::optional<std::string_view> find_choice(std::string_view choices,
                                                          std::string_view word, bool any_case);
/// The key and the words of `only_with` and its like; empty where there is none.
struct Prerequisite {
  std::string_view key, words;
};
[[nodiscard]] Prerequisite prerequisite_in(std::string_view text);

/// absent: no such key. null: the default. automatic: "auto", the default that the user's training
/// may change.
enum class Presence : std::uint8_t { absent, null, automatic, given };

/// A value with its place. Words are spelled as their row spells them.
struct Reading {
  json::Node node;
  KnobValue value;
};

/// The words of a document on a row. Objects and lists have values without content, lists of texts
/// a text with a line for each.
struct KeyReading {
  std::size_t row = 0;
  Presence presence = Presence::absent;
  std::vector<Reading> values;  ///< one; all of a list where the row is listable; not given: none
  bool is_sound = true;         ///< neither it nor anything below it is a problem
  bool is_read = true;          ///< its own value is as the document has it, or the default
};

/// Rows in their order, sections before their members. Two rows in succession with one pointer are
/// two forms of its value. A list of fixed length has a row for each element.
class KeyTable {
 public:
  /// In which order members of a section are read, and complained about.
  enum class Order { of_rows, of_document };

  /// `others`: keys of other releases than `release`, which refuses them where a section is closed,
  /// and those that it no longer knows at the top level, too.
  KeyTable(std::vector<Key> keys, Order order, const std::vector<Key>& others = {},
           Version release = {});

  [[nodiscard]] const std::vector<Key>& keys() const { return keys_; }
  /// The first row of a pointer, or nothing.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view pointer) const;
  /// The rows right below a pointer, and all forms of one.
  [[nodiscard]] const std::vector<std::size_t>& below(std::string_view pointer) const;
  [[nodiscard]] const std::vector<std::size_t>& forms(std::string_view pointer) const;
  /// The rows of a row's other names.
  [[nodiscard]] const std::vector<std::size_t>& aliases(std::size_t row) const {
    return aliases_[row];
  }
  /// Tells whether DeepSpeed does not read a section of the root, since its first name is there,
  /// too.
  [[nodiscard]] bool is_idle_name(const json::Node& root, const Key& key) const;
  /// The problem of a key that only other releases know, with a hint; empty where none does.
  [[nodiscard]] std::string words_of_other_release(std::string_view pointer) const;
  /// Earlier releases knew it.
  [[nodiscard]] bool was_removed(std::string_view pointer) const;
  /// The row's default as a value of its type; nothing where it has none.
  [[nodiscard]] const KnobValue& default_value(std::size_t row) const { return defaults_[row]; }

  /// A member of a section that DeepSpeed reads by a pydantic model: 5e8 and "7" are integers,
  /// "yes" is true; null only where it is the default, "auto" always.
  [[nodiscard]] bool is_converted(const Key& key) const;
  /// null and "auto", where the row takes them.
  [[nodiscard]] bool takes_null(const Key& key) const;
  [[nodiscard]] bool takes_auto(const Key& key) const;
  [[nodiscard]] bool stands_for_default(const json::Node& node, const Key& key) const;

  /// The node as a value of the row, or nothing after adding a problem.
  std::optional<KnobValue> read_value(const json::Node& node, const Key& key,
                                      json::Problems& problems) const;

  /// Tells whether DeepSpeed's config takes any value here without a look.
  [[nodiscard]] bool is_passed_on(const Key& key) const;
  /// The same, where the built-in step does not act on it either.
  [[nodiscard]] bool is_unchecked(const Key& key) const;

  using Sink = std::function<void(KeyReading)>;
  /// Reads `node`, at its place in the document, and hands over what it says of its row and of all
  /// rows below, members before their section. Rows that it does not hold are absent. Adds
  /// problems: wrong types, values out of range, unknown keys where a section is closed. A node
  /// without a row is skipped; the root's own keys without rows, too. `unchecked`: where there is
  /// one, it gets the wrong values that DeepSpeed takes without a look.
  void read(const json::Node& node, json::Problems& problems, const Sink& sink,
            json::Problems* unchecked = nullptr) const;

 private:
  friend class KeyReader;
  using Rows = std::unordered_map<std::string_view, std::vector<std::size_t>>;

  [[nodiscard]] bool is_read_by_pydantic_1() const;

  std::vector<Key> keys_;
  Order order_;
  Rows forms_, below_;
  std::unordered_map<std::string_view, Key> others_;
  Version release_;
  std::vector<std::vector<std::size_t>> aliases_;
  std::vector<KnobValue> defaults_;
};

/// The rows that a release knows, as they are in it.
template <class Row>
[[nodiscard]] std::vector<Row> rows_of(Version version, const std::vector<Row>& rows) {
  std::vector<Row> known;
  for (const Row& row : rows) {
    if (version < row.since || (row.until != Version{} && version >= row.until)) continue;
    known.push_back(row);
    for (const FormerRow& former : row.former) {
      if (version >= former.before) continue;
      if (!former.fallback.empty()) known.back().fallback = former.fallback;
      if (former.low) known.back().low = *former.low;
      break;
    }
  }
  return known;
}

}  // namespace dstune
