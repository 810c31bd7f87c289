#pragma once
/// One archive for every value that is written and read again. A value's type lists its members
/// once, in a function that is found beside it:
///
///     template <class Archive>
///     void members(Archive& archive, json::Of<Archive, Lap>& lap) {
///       archive("name", lap.name);
///       archive("time_us", lap.time_s, {.low = 0, .scale = 1e6});
///       archive("note", lap.note, {.nothing = json::Nothing::omitted});
///     }
///
/// From that list follow writing (Writer), strict reading with the place of each problem (Reader),
/// and so JSON text and CBOR. Members may be numbers, texts, times, enumerations with texts
/// (text.hpp), JSON values, other such values, and lists, maps and optionals of these. A value that
/// is written as a list has a function `elements` in place of `members`, which calls
/// archive.item(). A list that several files use is declared in a header and instantiated for
/// Writer and Reader in one file. Local.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"

namespace dstune::json {

/// How a member that holds nothing is written. When it is read, so much may be missing.
enum class Nothing {
  written,  ///< as any other; an optional that holds nothing is omitted
  omitted,  ///< not at all: a number that is not positive, an empty text or list
  null,     ///< as null: an empty optional, a float that is not finite, an integer below 1
};

/// How a member stands in its object.
struct Form {
  /// Bounds that reading insists on, of a number or of each in a list or map. Infinite bounds stand
  /// for those of its type.
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double scale = 1;  ///< what is written is the member times this
  Nothing nothing = Nothing::written;
  bool may_be_missing = false;  ///< from what earlier releases wrote: the member keeps its value
  std::string_view missing{};   ///< the problem where it is missing, whatever the rules say
};

/// The form of a count or a measured amount: not below 0.
inline constexpr Form amount{.low = 0};

/// The rules of a reader for a value and for those inside it.
struct Rules {
  bool refuses_unknown = true;
  /// The problem of a missing member, {} being its key. Empty: the member keeps its value.
  std::string_view missing = "the key \"{}\" is missing";
  std::string_view no_list = "expected a list, got {}";  ///< … of what is none
};
inline constexpr Rules strict{};
/// A member that an earlier release did not write keeps its value; one that a later release writes
/// is ignored.
inline constexpr Rules lenient{.refuses_unknown = false, .missing = {}};

/// Enumerations travel between ranks as numbers.
enum class EnumForm { text, number };

template <class T>
concept HasMembers = requires(Reader& archive, T& value) {
  members(archive, value);
};
template <class T>
concept HasElements = requires(Reader& archive, T& value) {
  elements(archive, value);
};

/// Writes the members of one value.
class Writer {
 public:
  static constexpr bool is_reading = false;

  /// `out` becomes an object, or a list.
  static Writer object(Value& out, EnumForm enums);
  static Writer list(Value& out, EnumForm enums);

  template <class Member>
  void operator()(std::string_view key, const Member& member, const Form& form = {}) {
    if (form.nothing == Nothing::omitted && is_nothing(member)) return;
    if constexpr (requires { member.has_value(); }) {
      if (!member && form.nothing != Nothing::null) return;
    }
    write(add(key), member, form);
  }
  /// The next element of a list.
  template <class Member>
  void item(const Member& member, const Form& form = {}) {
    write(append(), member, form);
  }
  /// An object of members that belong to the same value.
  template <class Visit>
  void section(std::string_view key, Visit&& visit, const Form& /*form*/ = {}) {
    Writer inner = object(add(key), enums_);
    visit(inner);
  }
  /// Writes those members of a member that differ from `usual`'s; nothing if none does.
  template <class Member>
  void differences(std::string_view key, const Member& member, const Member& usual) {
    write(add(key), member, {});
    write(add(""), usual, {});
    keep_differences();
  }

  // Only a reader does these.
  void rules(const Rules&) {}
  void constant(std::string_view key, const Value& value, std::string_view refusal);
  void stop_where_wrong() {}
  void refuse_other_sizes(std::string_view) {}

  template <class T>
  void write(Value& place, const T& value, const Form& form) {
    if constexpr (std::is_enum_v<T>) {
      write_enum(place, texts_of(value), static_cast<int>(value));
    } else if constexpr (HasMembers<T>) {
      Writer inner = object(place, enums_);
      members(inner, value);
    } else if constexpr (HasElements<T>) {
      Writer inner = list(place, enums_);
      elements(inner, value);
    } else {
      write_plain(place, value, form);
    }
  }

 private:
  Writer(Value& out, EnumForm enums) : out_(&out), enums_(enums) {}

  /// A new member of the object, a new element of the list.
  Value& add(std::string_view key);
  Value& append();
  void keep_differences();

  void write_enum(Value& place, const EnumTexts& texts, int value) const;
  static void write_plain(Value& place, bool value, const Form& form);
  static void write_plain(Value& place, double value, const Form& form);
  static void write_plain(Value& place, const std::string& value, const Form& form);
  static void write_plain(Value& place, std::chrono::system_clock::time_point value,
                          const Form& form);
  static void write_plain(Value& place, const Value& value, const Form& form);
  template <std::integral T>
  static void write_plain(Value& place, T value, const Form& form) {
    if (form.nothing != Nothing::null || value > 0) place = value;
  }
  template <class T>
  void write_plain(Value& place, const std::vector<T>& values, const Form& form) {
    Writer inner = list(place, enums_);
    for (const T& value : values) inner.item(value, form);
  }
  template <class T>
  void write_plain(Value& place, const std::map<std::string, T>& values, const Form& form) {
    Writer inner = object(place, enums_);
    for (const auto& [key, value] : values) inner.write(inner.add(key), value, form);
  }
  template <class T>
  void write_plain(Value& place, const std::optional<T>& value, const Form& form) {
    if (value) write(place, *value, form);
  }

  template <class Member>
  static bool is_nothing(const Member& member) {
    if constexpr (std::is_arithmetic_v<Member>) {
      return !(member > 0);
    } else if constexpr (requires { member.empty(); }) {
      return member.empty();
    } else {
      return false;
    }
  }

  Value* out_;
  EnumForm enums_;
};

/// Reads the members of one value: a wrong type adds a problem and leaves the member as it is.
class Reader {
 public:
  static constexpr bool is_reading = true;

  /// Reads an object. Begins with strict rules. finish() ends it.
  Reader(const Node& node, Problems& problems, EnumForm enums)
      : node_(node), out_(&problems), enums_(enums) {
    begin_object();
  }

  template <class Member>
  void operator()(std::string_view key, Member& member, const Form& form = {}) {
    constexpr bool is_optional = requires {
      member.has_value();
    };
    if (const auto found = find(key, form, is_optional)) read(*found, member, form);
  }
  template <class Member>
  void item(Member& member, const Form& form = {}) {
    if (const auto found = next()) read(*found, member, form);
  }
  template <class Visit>
  void section(std::string_view key, Visit&& visit, const Form& form = {}) {
    if (const auto found = find(key, form, false)) read_object(*found, visit);
  }
  template <class Member>
  void differences(std::string_view key, Member& member, const Member& usual) {
    member = usual;
    const auto found = find(key, {.may_be_missing = true}, false);
    if (!found) return;
    read_object(*found, [&](Reader& inner) {
      inner.rules_.missing = {};
      members(inner, member);
    });
  }

  /// For what follows in this value, and for those inside it.
  void rules(const Rules& rules) { rules_ = rules; }
  /// A member that always has this value.
  void constant(std::string_view key, const Value& value, std::string_view refusal);
  /// Reads nothing more if something was wrong until here.
  void stop_where_wrong();
  /// A problem at this value, or at a pointer below it. For what types and bounds do not say.
  void refuse(std::string_view message, std::string_view below = {});
  /// Sets the message, in place of the usual one, for a list of another length than the elements
  /// that were read.
  void refuse_other_sizes(std::string_view message) { wrong_size_ = message; }

  template <class T>
  void read(const Node& node, T& value, const Form& form) {
    if constexpr (std::is_enum_v<T>) {
      if (const auto known = read_enum(node, texts_of(value))) value = static_cast<T>(*known);
    } else if constexpr (HasMembers<T>) {
      read_object(node, [&](Reader& inner) { members(inner, value); });
    } else if constexpr (HasElements<T>) {
      Reader inner(node, *this);
      inner.begin_list();
      elements(inner, value);
      inner.finish();
    } else {
      read_plain(node, value, form);
    }
  }

  /// Adds what was found to the problems: unknown keys first.
  void finish();

 private:
  /// Reads a value inside that of `outer`.
  Reader(const Node& node, Reader& outer)
      : node_(node), out_(&outer.problems_), rules_(outer.rules_), enums_(outer.enums_) {}

  void begin_object();
  void begin_list();
  template <class Visit>
  void read_object(const Node& node, Visit&& visit) {
    Reader inner(node, *this);
    inner.begin_object();
    visit(inner);
    inner.finish();
  }
  std::optional<Node> find(std::string_view key, const Form& form, bool is_optional);
  std::optional<Node> next();

  std::optional<int> read_enum(const Node& node, const EnumTexts& texts);
  bool expect_list(const Node& node);
  [[nodiscard]] static bool is_null(const Node& node, const Form& form);
  std::optional<std::int64_t> integer(const Node& node, const Form& form, std::int64_t lowest,
                                      std::int64_t highest);
  void read_plain(const Node& node, bool& value, const Form& form);
  void read_plain(const Node& node, double& value, const Form& form);
  void read_plain(const Node& node, std::string& value, const Form& form);
  void read_plain(const Node& node, std::chrono::system_clock::time_point& value, const Form& form);
  void read_plain(const Node& node, Value& value, const Form& form);
  template <std::integral T>
  void read_plain(const Node& node, T& value, const Form& form) {
    // No amount here is beyond 63 bits.
    using Wide = std::int64_t;
    constexpr bool is_wide = sizeof(T) >= sizeof(Wide);
    constexpr Wide lowest = std::is_signed_v<T> ? Wide{std::numeric_limits<T>::min()} : Wide{0};
    constexpr Wide highest = is_wide ? std::numeric_limits<Wide>::max()
                                     : static_cast<Wide>(std::numeric_limits<T>::max());
    if (const auto number = integer(node, form, lowest, highest)) value = static_cast<T>(*number);
  }
  template <class T>
  void read_plain(const Node& node, std::vector<T>& values, const Form& form) {
    values.clear();
    if (!expect_list(node)) return;
    for (const Node& each : node.elements()) read(each, values.emplace_back(), form);
  }
  template <class T>
  void read_plain(const Node& node, std::map<std::string, T>& values, const Form& form) {
    values.clear();
    if (!node.expect_object(problems_)) return;
    for (const std::string& key : node.keys()) read(*node.find(key), values[key], form);
  }
  template <class T>
  void read_plain(const Node& node, std::optional<T>& value, const Form& form) {
    value.reset();
    if (!is_null(node, form)) read(node, value.emplace(), form);
  }

  Node node_;
  Problems* out_;
  Problems problems_;  ///< of this value; those of unknown keys go before them
  Rules rules_;
  EnumForm enums_;
  bool is_stopped_ = false;
  std::vector<std::string_view> known_;  ///< keys
  std::vector<Node> elements_;           ///< of a list
  std::size_t next_element_ = 0;
  std::string_view wrong_size_ = "the list has more or fewer values than expected";
};

template <class T>
Value write(const T& value, EnumForm enums = EnumForm::text) {
  Value out;
  Writer writer = Writer::object(out, enums);
  members(writer, value);
  return out;
}
template <class T>
void read(const Node& node, T& value, Problems& problems, EnumForm enums = EnumForm::text) {
  Reader reader(node, problems, enums);
  members(reader, value);
  reader.finish();
}
/// Throws InputError with every problem there is.
template <class T>
T read(const Node& node, EnumForm enums = EnumForm::text) {
  Problems problems;
  T value;
  read(node, value, problems, enums);
  problems.check();
  return value;
}

/// Returns the value as it travels between ranks: CBOR, enumerations as numbers.
std::vector<std::byte> to_cbor(const Value& value);
template <class T>
std::vector<std::byte> pack(const T& value) {
  return to_cbor(write(value, EnumForm::number));
}
/// Throws InputError, with `name` for the file, for bytes that are no such value.
template <class T>
T unpack(std::span<const std::byte> bytes, const std::string& name) {
  return read<T>(Document::parse_cbor(bytes, name).node(), EnumForm::number);
}

}  // namespace dstune::json
