#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "json/builder.hpp"
#include "json/cbor_tree.hpp"

namespace dstune::json {

namespace {

/// Returns the text without byte order marks (the library would skip a second one). Throws
/// InputError if it is not UTF-8.
std::string_view checked(std::string_view text, const std::string& file) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  while (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  const std::optional<std::size_t> bad = find_bad_byte(text);
  if (!bad) return text;
  const TextPlaces places(text);
  throw InputError(
      {{file, "", places.line(*bad),
        fmt::format("column {}: byte 0x{:02X} is not UTF-8 text: save the file as UTF-8",
                    places.column(*bad), static_cast<unsigned char>(text[*bad]))}});
}

/// Every key has a colon behind it: too many are seen here long before they are sorted out one by
/// one. No configuration has as many in its texts and comments.
void check_colons(std::string_view text, const std::string& file, std::size_t max_keys) {
  const auto colons = static_cast<std::size_t>(std::count(text.begin(), text.end(), ':'));
  if (colons <= max_keys) return;
  std::size_t at = 0;
  for (std::size_t keys = 0; keys <= max_keys; ++keys) at = text.find(':', at) + 1;
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  throw InputError(
      {{file, "", static_cast<int>(line),
        fmt::format("there are more than {} keys, by their colons: shorten the file", max_keys)}});
}

struct Found {
  const Value* value;
  std::size_t index;  ///< of the value among its neighbours
};

/// The value that a pointer's token names inside `value`, or nothing.
std::optional<Found> find(const Value& value, std::string_view token) {
  if (value.is_array()) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(token.begin(), token.end(), index);
    if (error != std::errc() || end != token.end() || index >= value.size()) return std::nullopt;
    return Found{&value[index], index};
  }
  if (!value.is_object()) return std::nullopt;
  std::string key;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const bool is_escaped = token[i] == '~' && i + 1 < token.size();
    key += is_escaped ? (token[++i] == '1' ? '/' : '~') : token[i];
  }
  const auto& members = value.get_ref<const Value::object_t&>();
  const auto found = members.find(key);
  if (found == members.end()) return std::nullopt;
  return Found{&found->second, static_cast<std::size_t>(found - members.begin())};
}

/// " of at least 0", " from 0 to 3", or nothing where the bounds are those of the type.
template <class Number>
std::string range_words(Number low, Number high, Number lowest, Number highest) {
  if (low == lowest && high == highest) return "";
  const auto text = [](Number number) {
    if constexpr (std::is_same_v<Number, double>)
      return format_number(number);
    else
      return std::to_string(number);
  };
  if (high == highest) return " of at least " + text(low);
  if (low == lowest) return " of at most " + text(high);
  return " from " + text(low) + " to " + text(high);
}

/// A value as a message shows it.
std::string shown(const Value& value) {
  if (value.is_string()) {
    constexpr std::size_t longest = 60;
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > longest) return "a long text";
    return value.dump();
  }
  return value.is_primitive() ? value.dump() : type_words(value);
}

Problem mistaken(const Node& node, std::string_view expected) {
  return node.problem(fmt::format("expected {}, got {}", expected, shown(node.value())));
}

std::size_t edits(std::string_view from, std::string_view to) {
  // Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
  std::vector<std::vector<std::size_t>> cost(from.size() + 1,
                                             std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = from[i - 1] == to[j - 1] ? 0 : 1;
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + replaced});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[from.size()][to.size()];
}

/// Tells whether a text that no reader takes was meant as Hjson: by a comment behind '#', or by a
/// first key without quotes.
bool looks_like_hjson(std::string_view text) {
  constexpr std::string_view skipped = " \t\r\n";
  bool is_open = false;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(skipped), text.size()));
    if (text.starts_with('#')) return true;
    if (text.starts_with("//") || text.starts_with("/*")) {
      const bool is_block = text[1] == '*';
      const std::size_t end = text.find(is_block ? "*/" : "\n", 2);
      text.remove_prefix(end == text.npos ? text.size() : end + (is_block ? 2 : 1));
    } else if (!is_open && text.starts_with('{')) {
      is_open = true;
      text.remove_prefix(1);
    } else {
      break;
    }
  }
  const std::size_t length =
      static_cast<std::size_t>(std::ranges::find_if_not(text, is_word_char) - text.begin());
  text = text.substr(std::min(length, text.size()));
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return length > 0 && text.starts_with(':');
}

/// The value as an integer where it is one: 5e8 is, 4.7 and what 64 bits do not hold are not. (The
/// document's reader makes floats of integers that are too long.)
std::optional<std::int64_t> exact_integer(const Value& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::trunc(number) != number || number <= -0x1p63 || number >= 0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

void Problems::check() const {
  if (!problems_.empty()) throw InputError(problems_);
}

Document Document::parse(std::string_view text, std::string file, const ReadLimits& limits) {
  return read_by(&read_json, text, std::move(file), limits);
}

Document Document::parse_hjson(std::string_view text, std::string file, const ReadLimits& limits) {
  return read_by(&read_hjson, text, std::move(file), limits);
}

Document Document::read_by(void (*reader)(std::string_view, TreeBuilder&), std::string_view text,
                           std::string file, const ReadLimits& limits) {
  text = checked(text, file);
  check_colons(text, file, limits.values);
  TreeBuilder tree(text, file, limits.values);
  reader(text, tree);
  Document document;
  document.file_ = std::move(file);
  tree.finish(document.root_, document.lines_);
  return document;
}

Document Document::parse_cbor(std::span<const std::byte> bytes, std::string file) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  Value root;
  CborTree tree(root);
  if (!Value::sax_parse(begin, begin + bytes.size(), &tree, Value::input_format_t::cbor))
    throw InputError({{std::move(file), "", 0, "the bytes are no CBOR"}});
  return of(std::move(root), std::move(file));
}

Document Document::of(Value root, std::string file, LineTree lines) {
  Document document;
  document.file_ = std::move(file);
  document.root_ = std::move(root);
  document.lines_ = std::move(lines);
  return document;
}

Document Document::with(Value root, Places places) const {
  Document document = of(std::move(root), file_, lines_);
  document.places_ = std::move(places);
  return document;
}

Document Document::parse_either(std::string_view text, std::string file, const ReadLimits& limits) {
  try {
    return parse(text, file, limits);
  } catch (const InputError&) {
    try {
      return parse_hjson(text, file, limits);
    } catch (const InputError&) {
      if (looks_like_hjson(text)) throw;
    }
    throw;
  }
}

Document Document::read(const std::string& path, const ReadLimits& limits) {
  const std::string text = read_input_file(path, limits.bytes);
  return path.ends_with(".hjson") ? parse_hjson(text, path, limits)
                                  : parse_either(text, path, limits);
}

Place Document::place(const std::string& pointer) const {
  if (!places_.empty()) {
    for (std::string above = pointer;; above.erase(above.rfind('/'))) {
      if (const auto found = places_.find(above); found != places_.end()) return found->second;
      if (above.empty()) break;
    }
  }
  return {file_, pointer, own_line(pointer)};
}

Problem Document::located(Problem problem) const {
  if (places_.empty() || problem.file != file_) return problem;
  Place found = place(problem.pointer);
  // Only what stands around the key is written somewhere.
  if (found.pointer != problem.pointer && !places_.contains(problem.pointer))
    problem.message = problem.pointer + ": " + problem.message;
  problem.file = std::move(found.file);
  problem.pointer = std::move(found.pointer);
  problem.line = found.line;
  return problem;
}

Problem Document::problem(const std::string& pointer, std::string message) const {
  return located({file_, pointer, line(pointer), std::move(message)});
}

int Document::own_line(std::string_view pointer) const {
  const Value* value = &root_;
  const LineTree* lines = &lines_;
  std::string_view rest = pointer;
  while (rest.starts_with('/')) {
    rest.remove_prefix(1);
    const std::string_view token = rest.substr(0, rest.find('/'));
    rest.remove_prefix(token.size());
    const std::optional<Found> found = find(*value, token);
    if (!found || found->index >= lines->inside.size()) break;
    value = found->value;
    lines = &lines->inside[found->index];
  }
  return lines->line;
}

Node Document::node() const {
  return {*this, root_, ""};
}

Problem Node::problem(std::string message) const {
  return {document_->file(), pointer_, line(), std::move(message)};
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> names;
  if (!is_object()) return names;
  for (const auto& member : value_->items()) names.push_back(member.key());
  return names;
}

std::optional<Node> Node::find(const std::string& key) const {
  if (!is_object()) return std::nullopt;
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return Node(*document_, *found, append_pointer(pointer_, key));
}

std::vector<Node> Node::elements() const {
  std::vector<Node> nodes;
  if (!is_array()) return nodes;
  for (const Value& element : *value_)
    nodes.emplace_back(*document_, element, append_pointer(pointer_, std::to_string(nodes.size())));
  return nodes;
}

std::optional<bool> Node::boolean(Problems& problems) const {
  if (value_->is_boolean()) return value_->get<bool>();
  problems.add(mistaken(*this, "true or false"));
  return std::nullopt;
}

std::optional<std::int64_t> Node::integer(Problems& problems, std::int64_t low,
                                          std::int64_t high) const {
  const std::optional<std::int64_t> number = exact_integer(*value_);
  if (number && *number >= low && *number <= high) return number;
  using Limits = std::numeric_limits<std::int64_t>;
  problems.add(
      mistaken(*this, "an integer" + range_words(low, high, Limits::min(), Limits::max())));
  return std::nullopt;
}

std::optional<double> Node::number(Problems& problems, double low, double high) const {
  if (value_->is_number()) {
    const auto number = value_->get<double>();
    if (number >= low && number <= high) return number;
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  problems.add(mistaken(*this, "a number" + range_words(low, high, -infinity, infinity)));
  return std::nullopt;
}

std::optional<std::string> Node::string(Problems& problems) const {
  if (value_->is_string()) return value_->get<std::string>();
  problems.add(mistaken(*this, "a text in double quotes"));
  return std::nullopt;
}

bool Node::expect_object(Problems& problems) const {
  if (!is_object()) problems.add(mistaken(*this, "an object"));
  return is_object();
}

namespace {

/// The first of `known` whose first words are `key`: "tuner_type" for "tuner".
std::optional<std::string> continued(std::string_view key,
                                     const std::vector<std::string_view>& known) {
  constexpr std::size_t shortest = 4;
  const std::string begin = std::string(key) + "_";
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](std::string_view other) { return other.starts_with(begin); });
  if (key.size() < shortest || found == known.end()) return std::nullopt;
  return std::string(*found);
}

}  // namespace

void Node::refuse_unknown_keys(Problems& problems,
                               const std::vector<std::string_view>& known) const {
  if (!is_object()) return;
  for (const auto& [key, member] : value_->get_ref<const Value::object_t&>()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::optional<std::string> meant = nearest(key, known);
    if (!meant) meant = continued(key, known);
    const std::string hint = meant ? fmt::format("did you mean \"{}\"?", *meant) : "remove it";
    Problem problem = find(key)->problem("unknown key: " + hint);
    problem.is_unknown_key = true;
    problems.add(std::move(problem));
  }
}

std::string ascii_text(const Value& value) {
  return value.dump(-1, ' ', true, Value::error_handler_t::replace);
}

std::string append_pointer(const std::string& pointer, std::string_view key) {
  std::string out = pointer + '/';
  for (char c : key) {
    if (c == '~' || c == '/')
      out += c == '~' ? "~0" : "~1";
    else
      out += c;
  }
  return out;
}

std::string type_words(const Value& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "true or false";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a text";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return "no JSON value";
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string_view>& known) {
  constexpr std::size_t short_word = 6;
  std::optional<std::string> best;
  std::size_t best_edits = 3;
  for (std::string_view candidate : known) {
    const std::size_t shorter = std::min(word.size(), candidate.size());
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t most = shorter < short_word ? 1 : 2;
    if (longer > shorter + most) continue;
    const std::size_t distance = edits(word, candidate);
    if (distance > most || distance >= best_edits || distance >= longer) continue;
    best_edits = distance;
    best = std::string(candidate);
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string_view>& known) {
  // "gpu" is no mistyped "cpu".
  constexpr std::size_t shortest = 4;
  if (word.size() < shortest) return "";
  const std::optional<std::string> meant = nearest(lower_case(word), known);
  return meant ? fmt::format(" (did you mean {}?)", *meant) : "";
}

}  // namespace dstune::json
