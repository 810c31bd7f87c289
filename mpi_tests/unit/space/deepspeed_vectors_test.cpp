/// Results of DeepSpeed itself for names, lists, variables and batch sizes
/// (scripts/tools/deepspeed_vectors.py), against what is made of them here.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sections/sections.hpp"
#include "space_fixture.hpp"

namespace dstune {
namespace {

class DeepSpeedVectorsTest : public SpaceTest {
 protected:
  static const json::Value& vectors(const std::string& kind) {
    static const auto document = json::Document::read(DSTUNE_DEEPSPEED_VECTORS);
    return document.root().at(kind);
  }
};

TEST_F(DeepSpeedVectorsTest, CanonicalNames) {
  int compared = 0;
  for (const auto& vector : vectors("names")) {
    EXPECT_EQ(
        canonical_name(vector["config"], vector["keys"], vector["prefix"], vector["omit_values"]),
        vector["name"].get<std::string>())
        << vector["config"];
    ++compared;
  }
  EXPECT_GE(compared, 200);
}

TEST_F(DeepSpeedVectorsTest, ListsExpandInTheSameOrder) {
  int compared = 0;
  for (const auto& vector : vectors("spaces")) {
    const auto& expected = vector["configs"];
    const auto found = members(vector["space"].dump());
    ASSERT_EQ(found.size(), expected.size()) << vector["space"];
    for (std::size_t index = 0; index < found.size(); ++index) {
      json::Value ours = found[index].experiment.ds_config;
      ours.erase("train_batch_size");
      json::Value theirs = expected[index];
      theirs.erase("optimizer");
      // DeepSpeed's order of keys is that of its document, too.
      EXPECT_EQ(ours, theirs) << vector["space"] << " member " << index;
      ++compared;
    }
  }
  EXPECT_GE(compared, 500);
}

TEST_F(DeepSpeedVectorsTest, Variables) {
  const json::Value& kind = vectors("variables");
  const auto replaced = [&](const std::string& text, json::Problems& problems) {
    const json::Value value = {{"variables", kind["variables"]}, {"key", text}};
    const auto document = json::Document::parse(value.dump(), "vector");
    const auto variables = *document.node().find("variables");
    return replace_variables(*document.node().find("key"), &variables, problems);
  };
  for (const auto& vector : kind["replaced"]) {
    json::Problems problems;
    const std::string text = vector["text"];
    const auto ours = replaced(text, problems);
    EXPECT_TRUE(problems.empty()) << text;
    // DeepSpeed drops the text around a variable that is no text itself; here it is kept.
    const bool is_dropped = !vector["result"].is_string() && text != "$N" && text != "$ON";
    if (is_dropped) {
      EXPECT_TRUE(ours.is_string()) << text;
    } else {
      EXPECT_EQ(ours, vector["result"]) << text;
    }
  }
  for (const std::string text : kind["unknown"]) {
    json::Problems problems;
    replaced(text, problems);
    EXPECT_EQ(problems.all().size(), 1U) << text;
  }
}

TEST_F(DeepSpeedVectorsTest, BatchSizes) {
  const auto size = [](const json::Value& value) {
    return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
  };
  int kept = 0;
  int refused = 0;
  for (const auto& vector : vectors("batches")) {
    std::string why;
    const auto triple =
        resolve_batch(size(vector[1]), size(vector[2]), size(vector[3]), vector[0], why);
    const auto& expected = vector[4];
    ASSERT_EQ(triple.has_value(), !expected.is_null()) << vector << ' ' << why;
    ++(triple ? kept : refused);
    if (triple) {
      EXPECT_EQ(
          (json::Value{triple->train_batch_size, triple->micro_batch, triple->accumulation_steps}),
          expected)
          << vector;
    } else {
      EXPECT_FALSE(why.empty()) << vector;
    }
  }
  EXPECT_GE(kept, 100);
  EXPECT_GE(refused, 1000);
}

}  // namespace
}  // namespace dstune
