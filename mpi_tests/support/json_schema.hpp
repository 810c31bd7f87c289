#pragma once
/// Does a value follow a JSON Schema of the 2020-12 draft? It knows the keywords that schemas of
/// this repository use, and an unknown keyword is a problem, so that nothing goes unchecked.

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace dstune::test {

/// Json: nlohmann's, with any kind of object.
template <class Json>
class SchemaCheck {
 public:
  explicit SchemaCheck(const std::string& path) {
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    schema_ = Json::parse(file);
  }

  /// Each begins with the pointer of what is wrong.
  [[nodiscard]] std::vector<std::string> problems_of(const Json& value) const {
    std::vector<std::string> problems;
    check(schema_, value, "", problems);
    return problems;
  }

 private:
  using Problems = std::vector<std::string>;

  static bool has_type(const std::string& type, const Json& value) {
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    return type == "null" && value.is_null();
  }

  void check(const Json& schema, const Json& value, const std::string& at,
             Problems& problems) const {
    for (const auto& [keyword, rule] : schema.items()) {
      const auto refuse = [&, &word = keyword] {
        problems.push_back(at + ": " + word + ", got " + value.dump());
      };
      if (keyword == "$schema" || keyword == "title" || keyword == "description" ||
          keyword == "$defs" || keyword == "additionalProperties") {
        continue;  // the last is seen with the properties
      } else if (keyword == "$ref") {
        const auto pointer = rule.template get<std::string>().substr(1);
        check(schema_.at(typename Json::json_pointer(pointer)), value, at, problems);
      } else if (keyword == "type") {
        const auto types = rule.is_array() ? rule : Json::array({rule});
        if (std::none_of(types.begin(), types.end(), [&](const Json& type) {
              return has_type(type.template get<std::string>(), value);
            }))
          refuse();
      } else if (keyword == "enum") {
        if (std::find(rule.begin(), rule.end(), value) == rule.end()) refuse();
      } else if (keyword == "anyOf") {
        if (std::none_of(rule.begin(), rule.end(), [&](const Json& form) {
              Problems inside;
              check(form, value, at, inside);
              return inside.empty();
            }))
          refuse();
      } else if (keyword == "required") {
        for (const Json& key : rule)
          if (value.is_object() && !value.contains(key.template get<std::string>()))
            problems.push_back(at + ": lacks " + key.dump());
      } else if (keyword == "minimum") {
        if (value.is_number() && value < rule) refuse();
      } else if (keyword == "minItems" || keyword == "maxItems") {
        if (value.is_array() && (keyword == "minItems" ? value.size() < rule : value.size() > rule))
          refuse();
      } else if (keyword == "items") {
        for (std::size_t place = 0; value.is_array() && place < value.size(); ++place)
          check(rule, value[place], at + "/" + std::to_string(place), problems);
      } else if (keyword == "properties") {
        for (const auto& [key, inside] : rule.items())
          if (value.is_object() && value.contains(key))
            check(inside, value[key], at + "/" + key, problems);
      } else {
        problems.push_back(at + ": the schema has an unknown keyword " + keyword);
      }
    }
    if (value.is_object() && schema.contains("additionalProperties"))
      check_others(schema, value, at, problems);
  }

  void check_others(const Json& schema, const Json& value, const std::string& at,
                    Problems& problems) const {
    const Json& rule = schema["additionalProperties"];
    for (const auto& [key, inside] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(key)) continue;
      if (rule == false)
        problems.push_back(at + ": unknown key " + key);
      else
        check(rule, inside, at + "/" + key, problems);
    }
  }

  Json schema_;
};

}  // namespace dstune::test
