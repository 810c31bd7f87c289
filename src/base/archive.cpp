#include "dstune/base/archive.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/text.hpp"

namespace dstune::json {

namespace {

/// The members in their order: a look-up by key is linear, and no list has a key twice.
std::vector<std::pair<const std::string, Value>>& members_of(Value& object) {
  return object.get_ref<Value::object_t&>();
}

/// Makes room for one more. By itself the list would copy all values, since their keys can not be
/// moved.
void make_room(std::vector<std::pair<const std::string, Value>>& members) {
  constexpr std::size_t least = 8;
  if (members.size() < members.capacity()) return;
  std::vector<std::pair<const std::string, Value>> larger;
  larger.reserve(std::max(least, 4 * members.size()));
  for (auto& [key, value] : members) larger.emplace_back(key, std::move(value));
  members.swap(larger);
}

}  // namespace

Writer Writer::object(Value& out, EnumForm enums) {
  out = Value::object();
  return {out, enums};
}

Writer Writer::list(Value& out, EnumForm enums) {
  out = Value::array();
  return {out, enums};
}

void Writer::constant(std::string_view key, const Value& value, std::string_view) {
  add(key) = value;
}

Value& Writer::add(std::string_view key) {
  auto& members = members_of(*out_);
  make_room(members);
  return members.emplace_back(std::string(key), Value()).second;
}

Value& Writer::append() {
  return out_->emplace_back();
}

void Writer::keep_differences() {
  auto& all = members_of(*out_);
  const Value usual = std::move(all.back().second);
  all.pop_back();
  Value kept = Value::object();
  for (const auto& [key, value] : all.back().second.items())
    if (value != usual.at(key)) kept[key] = value;
  if (kept.empty())
    all.pop_back();
  else
    all.back().second = std::move(kept);
}

void Writer::write_enum(Value& place, const EnumTexts& texts, int value) const {
  if (enums_ == EnumForm::number)
    place = value;
  else
    place = find_text(texts, value);
}

void Writer::write_plain(Value& place, bool value, const Form&) {
  place = value;
}
void Writer::write_plain(Value& place, double value, const Form& form) {
  if (form.nothing != Nothing::null || std::isfinite(value)) place = value * form.scale;
}
void Writer::write_plain(Value& place, const std::string& value, const Form&) {
  place = value;
}
void Writer::write_plain(Value& place, std::chrono::system_clock::time_point value, const Form&) {
  place = format_time(value);
}
void Writer::write_plain(Value& place, const Value& value, const Form&) {
  place = value;
}

void Reader::begin_object() {
  is_stopped_ = !node_.expect_object(problems_);
}

void Reader::begin_list() {
  is_stopped_ = !expect_list(node_);
  elements_ = node_.elements();
  known_.clear();
}

void Reader::constant(std::string_view key, const Value& value, std::string_view refusal) {
  const auto found = find(key, {}, false);
  if (found && found->value() != value) problems_.add(found->problem(std::string(refusal)));
}

void Reader::stop_where_wrong() {
  is_stopped_ = is_stopped_ || !problems_.empty();
}

void Reader::refuse(std::string_view message, std::string_view below) {
  const std::string pointer = node_.pointer() + std::string(below);
  const Document& document = node_.document();
  problems_.add({document.file(), pointer, document.line(pointer), std::string(message)});
}

void Reader::finish() {
  if (rules_.refuses_unknown) node_.refuse_unknown_keys(*out_, known_);
  if (!is_stopped_ && elements_.size() != next_element_) refuse(wrong_size_);
  for (const Problem& problem : problems_.all()) out_->add(problem);
}

std::optional<Node> Reader::find(std::string_view key, const Form& form, bool is_optional) {
  known_.push_back(key);
  if (is_stopped_) return std::nullopt;
  std::optional<Node> found = node_.find(std::string(key));
  if (found || is_optional || form.may_be_missing || form.nothing == Nothing::omitted) return found;
  if (!form.missing.empty())
    refuse(form.missing);
  else if (!rules_.missing.empty())
    refuse(fmt::format(fmt::runtime(rules_.missing), key));
  return std::nullopt;
}

std::optional<Node> Reader::next() {
  if (is_stopped_ || next_element_++ >= elements_.size()) return std::nullopt;
  return elements_[next_element_ - 1];
}

std::optional<int> Reader::read_enum(const Node& node, const EnumTexts& texts) {
  if (enums_ == EnumForm::number) {
    const auto number = node.integer(problems_);
    if (!number) return std::nullopt;
    if (std::any_of(texts.all.begin(), texts.all.end(),
                    [&](const EnumText& each) { return each.value == *number; }))
      return static_cast<int>(*number);
    problems_.add(node.problem(fmt::format("{} is no enumerator's number", *number)));
    return std::nullopt;
  }
  const auto text = node.string(problems_);
  if (!text) return std::nullopt;
  const std::optional<int> value = find_value(texts, *text);
  if (!value) problems_.add(node.problem(fmt::format(fmt::runtime(texts.refusal), *text)));
  return value;
}

bool Reader::expect_list(const Node& node) {
  if (node.is_array()) return true;
  problems_.add(node.problem(fmt::format(fmt::runtime(rules_.no_list), type_words(node.value()))));
  return false;
}

bool Reader::is_null(const Node& node, const Form& form) {
  return form.nothing == Nothing::null && node.is_null();
}

std::optional<std::int64_t> Reader::integer(const Node& node, const Form& form, std::int64_t lowest,
                                            std::int64_t highest) {
  if (is_null(node, form)) return std::nullopt;
  if (form.low > static_cast<double>(lowest)) lowest = static_cast<std::int64_t>(form.low);
  if (form.high < static_cast<double>(highest)) highest = static_cast<std::int64_t>(form.high);
  return node.integer(problems_, lowest, highest);
}

void Reader::read_plain(const Node& node, bool& value, const Form&) {
  value = node.boolean(problems_).value_or(value);
}

void Reader::read_plain(const Node& node, double& value, const Form& form) {
  if (is_null(node, form)) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (node.value().is_number_float() && std::isinf(form.low) && std::isinf(form.high)) {
    // No bounds: CBOR has numbers that JSON has not.
    value = node.value().get<double>() / form.scale;
  } else if (const auto number = node.number(problems_, form.low, form.high)) {
    value = *number / form.scale;
  }
}

void Reader::read_plain(const Node& node, std::string& value, const Form&) {
  if (auto text = node.string(problems_)) value = std::move(*text);
}

void Reader::read_plain(const Node& node, std::chrono::system_clock::time_point& value,
                        const Form&) {
  const auto text = node.string(problems_);
  if (!text) return;
  if (const auto time = parse_time(*text))
    value = *time;
  else
    problems_.add(node.problem("expected a time in UTC such as 2026-01-02T03:04:05.678901Z"));
}

void Reader::read_plain(const Node& node, Value& value, const Form&) {
  value = node.value();
}

std::vector<std::byte> to_cbor(const Value& value) {
  const std::vector<std::uint8_t> cbor = Value::to_cbor(value);
  const auto* begin = reinterpret_cast<const std::byte*>(cbor.data());
  return {begin, begin + cbor.size()};
}

}  // namespace dstune::json
