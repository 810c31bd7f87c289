#pragma once
/// The words that rows of tables of keys are written in. Local.

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "dstune/core/keys.hpp"

namespace dstune::rows {

using enum KnobEffect;

constexpr double unbounded = std::numeric_limits<double>::infinity();

template <class Row>
concept IsRow = std::derived_from<Row, Key>;

/// A word with a value: the row with that in a column.
template <class Value>
struct Column {
  Value Key::*column;
  template <IsRow Row>
  constexpr Row operator()(const std::type_identity_t<Value>& value, Row row) const {
    row.*column = value;
    return row;
  }
};
/// As the compiler would, but for clang before 17, which builds the fuzzers.
template <class Value>
Column(Value Key::*) -> Column<Value>;

/// A word that says one thing of a row.
struct Flag {
  bool Key::*column;
  bool value = true;
  template <IsRow Row>
  constexpr Row operator()(Row row) const {
    row.*column = value;
    return row;
  }
};

inline constexpr Column at{&Key::stages};
inline constexpr Column from{&Key::low}, up_to{&Key::high};
inline constexpr Column one_of{&Key::choices};
inline constexpr Column matching{&Key::pattern};
inline constexpr Column instead{&Key::hint};
inline constexpr Column also{&Key::aliases};  ///< of these names a document has one
inline constexpr Column once{&Key::deprecated};
inline constexpr Column needing{&Key::needs};
inline constexpr Column only_with{&Key::only_with}, open_with{&Key::open_with};
inline constexpr Column closed_beside{&Key::closed_beside};
inline constexpr Column since{&Key::since};  ///< the first known release with it
inline constexpr Column until{&Key::until};  ///< and the first without
inline constexpr Column as_flag_of{&Key::flag_member};

inline constexpr Flag closed{&Key::closed};
inline constexpr Flag free_form{&Key::takes_auto};  ///< a model's member that takes any object
inline constexpr Flag not_null{&Key::takes_null, false}, not_auto{&Key::takes_auto, false};
inline constexpr Flag not_from_flag{&Key::takes_flag, false};
inline constexpr Flag whole{&Key::takes_float, false};  ///< DeepSpeed wants 5, not 5.0
inline constexpr Flag or_one_text{&Key::takes_lone_text};
inline constexpr Flag of_sections{&Key::of_sections};  ///< DeepSpeed looks into each member
inline constexpr Flag in_any_case{&Key::any_case};
inline constexpr Flag given_candidates{&Key::candidates_are_given};
inline constexpr Flag with_all_names{&Key::takes_all_names};
inline constexpr Flag listable{&Key::is_listable};

/// Before a release it had another default, or took what is smaller; the oldest one outside.
template <IsRow Row>
constexpr Row was(const FormerRow& former, Row row) {
  row.former.back() = row.former.front();
  row.former.front() = former;
  return row;
}

/// A section that DeepSpeed reads by a pydantic model, and one in another.
template <IsRow Row>
constexpr Row model(Row row) {
  return closed(Flag{&Key::model}(row));
}
template <IsRow Row>
constexpr Row nested(Row row) {
  return model(free_form(row));
}
/// A section or a model's member that may be null.
template <IsRow Row>
constexpr Row optional(Row row) {
  return Column{&Key::fallback}("null", Flag{&Key::takes_null}(row));
}
template <IsRow Row>
constexpr Row required(Row row) {
  return Flag{&Key::is_required}(not_null(row));
}
template <IsRow Row>
constexpr Row alone(Row row) {
  return Flag{&Key::is_alone}(not_null(row));
}

// What a key takes.

constexpr Key row_of_type(KnobType type, std::string_view pointer, std::string_view fallback,
                          KnobEffect effect, std::string_view help) {
  Key key{.pointer = pointer, .type = type, .fallback = fallback};
  key.effect = effect;
  key.help = help;
  return key;
}
constexpr Key flag(std::string_view pointer, std::string_view fallback, KnobEffect effect,
                   std::string_view help) {
  return row_of_type(KnobType::boolean, pointer, fallback, effect, help);
}
constexpr Key integer(std::string_view pointer, std::string_view fallback, double low,
                      KnobEffect effect, std::string_view help) {
  return from(low, row_of_type(KnobType::integer, pointer, fallback, effect, help));
}
constexpr Key number(std::string_view pointer, std::string_view fallback, double low, double high,
                     KnobEffect effect, std::string_view help) {
  return from(low, up_to(high, row_of_type(KnobType::number, pointer, fallback, effect, help)));
}
/// `choices` empty: any text.
constexpr Key text(std::string_view pointer, std::string_view fallback, std::string_view choices,
                   KnobEffect effect, std::string_view help) {
  return one_of(choices, row_of_type(KnobType::text, pointer, fallback, effect, help));
}
constexpr Key list(std::string_view pointer, std::string_view fallback, KnobEffect effect,
                   std::string_view help) {
  return row_of_type(KnobType::list, pointer, fallback, effect, help);
}
constexpr Key list_of_texts(std::string_view pointer, std::string_view fallback,
                            std::string_view choices, KnobEffect effect, std::string_view help) {
  return Flag{&Key::of_texts}(one_of(choices, list(pointer, fallback, effect, help)));
}
/// DeepSpeed looks for keys in it at once: neither null nor "auto".
constexpr Key section(std::string_view pointer, KnobEffect effect, std::string_view help) {
  return not_null(not_auto(row_of_type(KnobType::object, pointer, "{}", effect, help)));
}

// A row whose type and default are those of a member of a plain structure.

/// What a member is, or is where it is there. For decltype alone.
template <class Field>
Field content_of(const Field&);
template <class Field>
Field content_of(const std::optional<Field>&);

/// The member at the end of a path: of<&A::b, &B::c>(a) is a.b.c.
template <auto first, auto... rest, class Structure>
constexpr auto& of(Structure& structure) {
  if constexpr (sizeof...(rest) == 0)
    return structure.*first;
  else
    return of<rest...>(structure.*first);
}

/// A value as it stands in tables: 0, 1.0, 0.001, 1e-8, true, "adam".
[[nodiscard]] std::string default_text(const json::Value& value);

/// The default of Structure's member, as JSON text.
template <class Structure, auto... path>
std::string_view default_of() {
  static const std::string text = [] {
    const Structure structure;
    const auto& field = of<path...>(structure);
    using Field = std::decay_t<decltype(field)>;
    if constexpr (requires { field.has_value(); })
      return std::string("null");
    else if constexpr (std::is_enum_v<Field>)
      return default_text(to_text(field));
    else
      return default_text(field);
  }();
  return text;
}

template <class Structure, auto... path>
constexpr KnobType type_of() {
  using Field = decltype(content_of(of<path...>(std::declval<Structure&>())));
  if constexpr (std::is_same_v<Field, bool>)
    return KnobType::boolean;
  else if constexpr (std::integral<Field>)
    return KnobType::integer;
  else if constexpr (std::floating_point<Field>)
    return KnobType::number;
  else
    return KnobType::text;
}

/// The value becomes the member's, which may be a narrower integer, or optional; an integer also
/// that of a number.
template <class Structure, auto... path>
void assign(Structure& structure, const KnobValue& value) {
  auto& field = of<path...>(structure);
  using Field = decltype(content_of(field));
  if constexpr (std::is_same_v<Field, bool>)
    field = std::get<bool>(value);
  else if constexpr (std::integral<Field>)
    field = static_cast<Field>(std::get<std::int64_t>(value));
  else if constexpr (std::floating_point<Field>)
    field = std::holds_alternative<std::int64_t>(value)
                ? static_cast<Field>(std::get<std::int64_t>(value))
                : std::get<Field>(value);
  else
    field = std::get<Field>(value);
}

}  // namespace dstune::rows
