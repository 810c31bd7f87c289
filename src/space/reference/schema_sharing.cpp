#include <map>

#include <fmt/format.h>

#include "reference/schema_words.hpp"

namespace dstune::schema {

namespace {

using json::Value;

/// What a schema takes, without what a place says of it.
Value core_of(const Value& schema) {
  Value core = schema;
  core.erase("description");
  core.erase("default");
  return core;
}

/// Calls `visit` with each schema right inside one.
template <class Visit>
void for_each_inside(Value& schema, const Visit& visit) {
  for (auto member = schema.begin(); member != schema.end(); ++member) {
    const std::string& key = member.key();
    Value& value = member.value();
    if (key == "properties" || key == "dependentSchemas" || key == "$defs" || key == "anyOf" ||
        key == "allOf" || key == "prefixItems") {
      for (Value& each : value) visit(each);
    } else if ((key == "items" || key == "contains" || key == "additionalProperties" ||
                key == "if" || key == "then" || key == "else") &&
               value.is_object())
      visit(value);
  }
}

std::string plain_word(const Value& value) {
  std::string word = value.is_string() ? value.get<std::string>() : value.dump();
  std::erase_if(word, [](char c) { return c == '"'; });
  for (char& c : word)
    if (std::string_view("./\\ []{},~").find(c) != std::string_view::npos) c = '_';
  return word;
}

/// The first of many.
std::string names_of(const Value& words) {
  constexpr std::size_t most = 4;
  std::vector<std::string> names;
  for (const Value& word : words)
    if (names.size() < most) names.push_back(plain_word(word));
  if (words.size() > most) names.emplace_back("others");
  return fmt::format("{}", fmt::join(names, "_or_"));
}

std::string range_name(const Value& schema, std::string name) {
  if (schema.contains("minimum")) name += "_from_" + plain_word(schema["minimum"]);
  if (schema.contains("maximum")) name += "_to_" + plain_word(schema["maximum"]);
  return name;
}

/// In words, what a schema takes.
std::string name_of(const Value& schema) {
  if (schema.contains("$ref"))
    return schema["$ref"].get<std::string>().substr(std::string_view("#/$defs/").size());
  if (schema.contains("anyOf")) {
    std::vector<std::string> names;
    for (const Value& form : schema["anyOf"]) names.push_back(name_of(form));
    return fmt::format("{}", fmt::join(names, "_or_"));
  }
  if (schema.contains("const")) return "only_" + plain_word(schema["const"]);
  if (schema.contains("enum")) return names_of(schema["enum"]);
  if (schema.contains("examples")) return names_of(schema["examples"]);
  const std::string type = schema.value("type", "any");
  if (type == "array" && schema.contains("items") && schema.contains("minItems"))
    return "candidates";
  return type == "string" ? "text" : range_name(schema, type);
}

class Sharing {
 public:
  explicit Sharing(Value& whole) : whole_(&whole) {}

  void run() {
    for_each_inside(*whole_, [&](Value& schema) { count(schema); });
    for (Value& schema : (*whole_)["properties"]) share(schema);
    for (Value& schema : (*whole_)["$defs"]) share_inside(schema);
    (*whole_)["$defs"].update(shared_);
  }

 private:
  /// What stands inside something repeated is there once.
  void count(Value& schema) {
    if (++counts_[core_of(schema).dump()] == 1)
      for_each_inside(schema, [&](Value& inside) { count(inside); });
  }

  /// A schema of three lines is no longer than a reference.
  [[nodiscard]] bool is_shared(const Value& core) const {
    const bool is_short = core.size() == 1 && !core.begin().value().is_structured();
    return !is_short && !core.contains("properties") && counts_.at(core.dump()) > 1;
  }

  void share_inside(Value& schema) {
    for_each_inside(schema, [&](Value& inside) { share(inside); });
  }

  void share(Value& schema) {
    const Value core = core_of(schema);
    if (!is_shared(core)) return share_inside(schema);
    const std::string text = core.dump();
    if (!names_.contains(text)) names_.emplace(text, add(core));
    Value place = reference(names_.at(text));
    for (const char* key : {"description", "default"})
      if (schema.contains(key)) place[key] = schema[key];
    schema = std::move(place);
  }

  std::string add(const Value& core) {
    const std::string wanted = name_of(core);
    Value definition = core;
    share_inside(definition);
    const auto is_taken = [&](const std::string& name) {
      return shared_.contains(name) || (*whole_)["$defs"].contains(name);
    };
    std::string name = wanted;
    for (int count = 2; is_taken(name); ++count) name = fmt::format("{}_{}", wanted, count);
    shared_[name] = std::move(definition);
    return name;
  }

  Value* whole_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::string> names_;  ///< a schema's text → its definition
  Value shared_ = Value::object();
};

}  // namespace

std::string text_of(const Value& value, std::size_t indent) {
  constexpr std::size_t columns = 100;
  std::string line = value.dump();
  if (!value.is_structured() || value.empty() || indent + line.size() <= columns) return line;
  const std::string margin(indent + 2, ' ');
  std::vector<std::string> members;
  for (auto member = value.begin(); member != value.end(); ++member) {
    const std::string key = value.is_object() ? Value(member.key()).dump() + ": " : "";
    members.push_back(margin + key + text_of(*member, indent + 2));
  }
  const std::string inside = fmt::format("{}", fmt::join(members, ",\n"));
  const std::string end(indent, ' ');
  return value.is_object() ? fmt::format("{{\n{}\n{}}}", inside, end)
                           : fmt::format("[\n{}\n{}]", inside, end);
}

void share_repeated(Value& schema) {
  Sharing(schema).run();
}

}  // namespace dstune::schema
