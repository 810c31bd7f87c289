// The pages in docs are what the tables of keys say today, and the examples in them are taken.
#include "dstune/space/reference.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <ranges>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/text.hpp"
#include "dstune/core/settings.hpp"
#include "sections/sections.hpp"
#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

std::string committed(const std::string& name) {
  std::ifstream file(std::string(DSTUNE_DOCS) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ReferenceTest, CommittedPagesAreUpToDate) {
  constexpr const char* hint = "run cmake --build build/release --target reference";
  EXPECT_TRUE(committed("space.schema.json") == space_schema_text()) << hint;
  EXPECT_TRUE(committed("keys.md") == keys_page()) << hint;
}

TEST(ReferenceTest, HasEveryKey) {
  const std::string page = keys_page();
  const auto expect_section = [&](std::string_view pointer) {
    EXPECT_THAT(page, HasSubstr("\n### " + dotted(pointer) + "\n\n"));
  };
  for (const Knob& knob : every_knob().knobs()) expect_section(knob.pointer);
  for (const auto rows : {autotuning_rows(), dstune_rows()})
    for (const SectionRow& row : rows) expect_section(row.pointer);
  EXPECT_THAT(page, HasSubstr("- Type: integer, 1 to 1048576, or a list of them\n"));
  EXPECT_THAT(page, HasSubstr("- Type: integer, at least 1; or text\n"));
}

TEST(ReferenceTest, HelpOfAKeyIsItsSectionOfThePage) {
  const std::string page = keys_page();
  for (const KeyGroup& group : key_groups())
    for (const KeyWords& key : group.keys) {
      EXPECT_EQ(help_of_key(key.path), key_text(key)) << key.path;
      EXPECT_THAT(page, HasSubstr("\n### " + key_text(key)));
    }
}

TEST(ReferenceTest, FindsAKeyByItsNames) {
  const std::string text = help_of_key("zero_optimization.stage");
  EXPECT_THAT(text, HasSubstr("zero_optimization.stage\n\n"));
  EXPECT_THAT(text,
              HasSubstr("\n- Example: `{\"zero_optimization\": {\"stage\": [0, 1, 2, 3]}}`\n"));
  EXPECT_EQ(help_of_key("/zero_optimization/stage"), text);
  EXPECT_EQ(help_of_key("stage"), text);
  EXPECT_THAT(help_of_key("pin_memory"),
              HasSubstr("\n  zero_optimization.offload_param.pin_memory\n"));
  EXPECT_EQ(help_of_key("zero_optimization.stag"), "");
  EXPECT_EQ(help_of_key(""), "");
  EXPECT_THAT(suggested_key("zero_optimization.stag"), HasSubstr("zero_optimization.stage"));
}

TEST(ReferenceTest, LinesFitAPage) {
  for (const std::string_view line : lines_of(keys_page())) EXPECT_LE(line.size(), 100U) << line;
}

class ExamplesTest : public SpaceTest {
 protected:
  ExamplesTest() {
    for (const char* name : {"train.py", "profile.json"}) write(name, "{}");
    std::filesystem::copy_file(DSTUNE_EXAMPLE_PLUGIN, folder_ / "libmine.so");
    write("table.json", R"({"z0": {"step_time_s": 1, "status": "ok"}})");
    write("config.json", R"({"model_type": "gpt2"})");
    for (const std::string folder : {"", "templates/"})
      for (const char* stage : {"0", "1", "2", "3"})
        write(folder + "template_zero" + stage + ".json", R"({"zero_optimization": {}})");
  }

  /// The newest release that knows a key.
  static Version release_with(const Knob& knob) {
    for (const Version version : std::views::reverse(known_releases))
      if (knob_table(version).find_knob(knob.pointer) != nullptr) return version;
    return {};
  }

  void expect_taken(const KeyWords& key) {
    if (key.example.empty()) return;
    for (const Problem& problem : problems(key.example))
      ADD_FAILURE() << key.path << ": " << key.example << "\n  " << problem.text();
  }
};

TEST_F(ExamplesTest, AreTaken) {
  for (const KeyGroup& group : key_groups())
    for (const KeyWords& key : group.keys) {
      std::string pointer = "/" + key.path;
      std::ranges::replace(pointer, '.', '/');
      const Knob* const knob = every_knob().find_knob(pointer);
      version_ = knob == nullptr ? newest_release : release_with(*knob);
      expect_taken(key);
    }
}

TEST(SchemaTest, HasEveryKeyOfBothSections) {
  const json::Value schema = space_schema();
  for (const auto rows : {autotuning_rows(), dstune_rows()}) {
    for (const SectionRow& row : rows) {
      // A form that is an object has the keys below it.
      const json::Value* node = &schema;
      std::string_view rest = row.pointer;
      while (node != nullptr && !rest.empty()) {
        rest.remove_prefix(1);
        const std::string key(rest.substr(0, rest.find('/')));
        rest.remove_prefix(key.size());
        const json::Value* next = nullptr;
        const auto look = [&](const json::Value& form) {
          if (form.contains("properties") && form["properties"].contains(key))
            next = &form["properties"][key];
          if (key == "*" && form.contains("additionalProperties"))
            next = &form["additionalProperties"];
        };
        look(*node);
        if (node->contains("anyOf"))
          for (const json::Value& form : (*node)["anyOf"]) {
            look(form);
            if (form.contains("then")) look(form["then"]);
            if (form.contains("else")) look(form["else"]);
          }
        node = next;
      }
      EXPECT_NE(node, nullptr) << row.pointer;
    }
  }
}

TEST(SchemaTest, RefersOnlyToWhatItDefines) {
  const json::Value schema = space_schema();
  const auto check = [&](const auto& self, const json::Value& node) -> void {
    if (node.is_object() && node.contains("$ref")) {
      const auto name = node["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
      EXPECT_TRUE(schema["$defs"].contains(name)) << name;
    }
    if (node.is_structured())
      for (const json::Value& member : node) self(self, member);
  };
  check(check, schema);
}

}  // namespace
}  // namespace dstune
