#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"
#include "dstune/base/yaml.hpp"
#include "json/builder.hpp"
#include "yaml/scalars.hpp"

namespace dstune {

namespace {

using json::Value;

/// Deeper documents are no configuration, and would exhaust the stack of whoever walks them.
constexpr std::size_t deepest_yaml = 200;
/// Keys and elements, those that aliases repeat among them.
constexpr std::size_t max_yaml_values = 1'000'000;

struct Sizes {
  std::size_t values = 0;
  std::size_t bytes = 0;  ///< of texts
  std::size_t depth = 0;
};

Sizes sizes_of(const Value& value) {
  Sizes sizes{1, 0, 0};
  if (value.is_string()) sizes.bytes = value.get_ref<const std::string&>().size();
  if (!value.is_structured()) return sizes;
  for (const auto& item : value.items()) {
    const Sizes inside = sizes_of(item.value());
    sizes.values += inside.values;
    sizes.bytes += inside.bytes + (value.is_object() ? item.key().size() : 0);
    sizes.depth = std::max(sizes.depth, inside.depth);
  }
  ++sizes.depth;
  return sizes;
}

/// Builds the values of one document from yaml-cpp's events. Its own tree would share the nodes of
/// aliases and keep a repeated key.
class YamlTree : public YAML::EventHandler {
 public:
  explicit YamlTree(std::string file) : file_(std::move(file)) {}

  json::Document take() {
    return json::Document::of(std::move(root_.value), file_, std::move(root_.lines));
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_)
      refuse(mark.line, "a second document begins here: keep one, without \"---\"");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark&, const std::string&) override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    OnScalar(mark, "?", anchor, "");
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark.line, "the value contains itself: write it out");
    const Sizes sizes = found->second.sizes;
    if (open_.size() + sizes.depth > deepest_yaml) refuse_depth(mark.line);
    count(mark.line, sizes);
    attach({found->second.value, {mark.line + 1, {}}});
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& word) override {
    if (takes_key() && (tag.empty() || tag == "?" || tag == "!")) {
      count(mark.line, {1, word.size(), 0});
      if (anchor != YAML::NullAnchor) keep(anchor, word, {1, word.size(), 0});
      set_key(word, tag != "!" && word == "<<", mark.line);
      return;
    }
    std::optional<Value> value = yaml::tagged_value(tag, word);
    if (!value)
      refuse(mark.line, fmt::format("{} does not go with the tag {}: leave the tag out",
                                    printable(word), printable(tag)));
    const Sizes sizes = sizes_of(*value);
    count(mark.line, sizes);
    if (anchor != YAML::NullAnchor) keep(anchor, *value, sizes);
    attach({*std::move(value), {mark.line + 1, {}}});
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Value::array(), "seq", tag, anchor, mark.line);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Value::object(), "map", tag, anchor, mark.line);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  /// A value with its line and those of the values inside, as a document has them.
  struct Tree {
    Value value;
    json::LineTree lines;
  };
  struct Container {
    Tree tree;
    YAML::anchor_t anchor;
    std::optional<std::string> key = {};
    bool is_merge = false;  ///< what the key `<<` has
    std::unordered_map<std::string, int> seen = {};
    std::vector<Tree> merged = {};

    /// As yaml-cpp counts, from 0.
    [[nodiscard]] int line() const { return tree.lines.line - 1; }
  };
  struct Anchored {
    Value value;
    Sizes sizes;
  };

  /// `line` as yaml-cpp counts, from 0.
  [[noreturn]] void refuse(int line, std::string message) const {
    throw InputError({{file_, "", line + 1, std::move(message)}});
  }
  [[noreturn]] void refuse_depth(int line) const {
    refuse(line, fmt::format("lists and mappings are nested more than {} deep: flatten them",
                             deepest_yaml));
  }

  void count(int line, const Sizes& sizes) {
    total_.values += sizes.values;
    total_.bytes += sizes.bytes;
    if (total_.values > max_yaml_values || total_.bytes > max_input_bytes)
      refuse(line, "the document is too large with what its aliases repeat: shorten it");
  }

  void keep(YAML::anchor_t anchor, Value value, const Sizes& sizes) {
    count(0, sizes);
    anchors_[anchor] = {std::move(value), sizes};
  }

  [[nodiscard]] bool takes_key() const {
    return !open_.empty() && open_.back().tree.value.is_object() && !open_.back().key;
  }

  void set_key(const std::string& key, bool is_merge, int line) {
    Container& top = open_.back();
    top.key = key;
    top.is_merge = is_merge;
    const auto [first, is_new] = top.seen.emplace(key, line);
    if (!is_new)
      refuse(line, fmt::format("the key {} is given twice (first on line {}): keep one of them",
                               printable(key), first->second + 1));
  }

  void open(Value empty, const char* kind, const std::string& tag, YAML::anchor_t anchor,
            int line) {
    if (takes_key()) refuse(line, "a key is a list or a mapping: write a text");
    if (!tag.empty() && tag != "?" && tag != "!" &&
        tag != fmt::format("tag:yaml.org,2002:{}", kind))
      refuse(line, fmt::format("the tag {} is none of YAML's own: leave it out", printable(tag)));
    if (open_.size() == deepest_yaml) refuse_depth(line);
    count(line, {1, 0, 0});
    open_.push_back({{std::move(empty), {line + 1, {}}}, anchor});
  }

  void close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    for (const Tree& source : done.merged)
      for (const auto& item : source.value.items())
        if (done.seen.emplace(item.key(), done.line()).second)
          add_member(done, item.key(), {item.value(), {source.lines.line, {}}});
    const Value& value = done.tree.value;
    if (done.anchor != YAML::NullAnchor) keep(done.anchor, value, sizes_of(value));
    attach(std::move(done.tree));
  }

  void attach(Tree tree) {
    if (open_.empty()) {
      root_ = std::move(tree);
      return;
    }
    Container& top = open_.back();
    const int line = tree.lines.line - 1;
    Value& value = tree.value;
    if (top.tree.value.is_array()) {
      top.tree.value.get_ref<Value::array_t&>().push_back(std::move(value));
      top.tree.lines.inside.push_back(std::move(tree.lines));
      return;
    }
    if (!top.key) {
      if (value.is_structured()) refuse(line, "a key is a list or a mapping: write a text");
      set_key(value.is_string() ? value.get<std::string>() : value.dump(), false, line);
      return;
    }
    tree.lines.line = top.seen.at(*top.key) + 1;
    if (top.is_merge)
      merge(top, std::move(value), line);
    else
      add_member(top, *top.key, std::move(tree));
    top.key.reset();
  }

  /// Members of the first mapping that has them count.
  void merge(Container& into, Value value, int line) const {
    const json::LineTree lines{line + 1, {}};
    if (value.is_object()) {
      into.merged.push_back({std::move(value), lines});
      return;
    }
    if (!value.is_array()) refuse(line, "<< has no mapping: give it one, as in \"<<: *name\"");
    for (Value& each : value) {
      if (!each.is_object()) refuse(line, "<< has a list with something else than mappings");
      into.merged.push_back({std::move(each), lines});
    }
  }

  /// Straight to the end: a look-up in an ordered object is linear.
  static void add_member(Container& into, const std::string& key, Tree tree) {
    auto& members = static_cast<std::vector<std::pair<const std::string, Value>>&>(
        into.tree.value.get_ref<Value::object_t&>());
    members.emplace_back(key, std::move(tree.value));
    into.tree.lines.inside.push_back(std::move(tree.lines));
  }

  std::string file_;
  bool has_document_ = false;
  Tree root_;
  std::vector<Container> open_;
  std::unordered_map<YAML::anchor_t, Anchored> anchors_;
  Sizes total_;
};

/// The parser's words, as part of a sentence.
std::string words_of(std::string message) {
  if (!message.empty())
    message[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(message[0])));
  return printable(message);
}

}  // namespace

json::Document parse_yaml(std::string_view text, const std::string& file) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (const auto bad = json::find_bad_byte(text))
    throw InputError({{file, "", json::TextPlaces(text).line(*bad),
                       fmt::format("byte 0x{:02X} is not UTF-8 text: save the file as UTF-8",
                                   static_cast<unsigned char>(text[*bad]))}});
  YamlTree tree(file);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(tree)) return tree.take();
    parser.HandleNextDocument(tree);
    return tree.take();
  } catch (const YAML::Exception& error) {
    throw InputError({{file, "", error.mark.line + 1,
                       fmt::format("column {}: this is no YAML: {}", error.mark.column + 1,
                                   words_of(error.msg))}});
  }
}

json::Document read_yaml(const std::string& path) {
  return parse_yaml(read_input_file(path), path);
}

}  // namespace dstune
