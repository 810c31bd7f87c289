// The pages in docs are what the tables of keys say today.
#include "dstune/space/reference.hpp"

#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/core/settings.hpp"
#include "sections/sections.hpp"

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
  const std::string page = committed("space.md");
  ASSERT_FALSE(page.empty());
  EXPECT_TRUE(page == with_reference(page)) << hint;
}

TEST(ReferenceTest, KeepsThePartOfThePageThatPeopleWrite) {
  const std::string page = with_reference("# Title\n\nprose\n\n");
  EXPECT_THAT(page, testing::StartsWith("# Title\n\nprose\n\n<!-- "));
  EXPECT_EQ(with_reference(page), page);
}

TEST(ReferenceTest, HasEveryKey) {
  const std::string text = space_reference();
  for (const Knob& knob : every_knob().knobs()) {
    const std::string key(knob.pointer.substr(knob.pointer.rfind('/') + 1));
    EXPECT_THAT(text, HasSubstr("| `" + key + "` | "));
  }
  EXPECT_THAT(text, HasSubstr("| `resources.num_gpus` | integer, or a list of them |"));
  EXPECT_THAT(text, HasSubstr("| `mp_size` | integer | `1` |"));
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
