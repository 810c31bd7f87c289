// Tables of keys, and the reader that all of them share.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_cases.hpp"
#include "dstune/core/settings.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

Key row_of(KnobType type, std::string_view pointer, Version since = {}, Version until = {}) {
  Key key;
  key.pointer = pointer;
  key.type = type;
  key.since = since;
  key.until = until;
  return key;
}

std::vector<std::string_view> pointers_of(const std::vector<Key>& rows) {
  std::vector<std::string_view> pointers;
  for (const Key& row : rows) pointers.push_back(row.pointer);
  return pointers;
}

const Key& row_in_file(std::string_view pointer) {
  const std::vector<Key>& rows = key_rows("deepspeed");
  return *std::ranges::find(rows, pointer, &Key::pointer);
}

TEST(KeyRowsTest, AreReadFromTheirFile) {
  const Key& bucket = row_in_file("/zero_optimization/reduce_bucket_size");
  EXPECT_EQ(bucket.type, KnobType::integer);
  EXPECT_EQ(bucket.fallback, "500000000");
  EXPECT_EQ(bucket.low, 1);
  EXPECT_EQ(bucket.stages, 0b1110U);
  EXPECT_EQ(bucket.effect, KnobEffect::measured);
  EXPECT_EQ(bucket.member, "reduce_bucket_size");
  EXPECT_EQ(bucket.former[0].before, (Version{0, 19, 6}));
  EXPECT_EQ(bucket.former[0].low, 0);
  EXPECT_TRUE(std::isinf(*row_in_file("/hybrid_engine/max_out_tokens").former[0].low));
  const Key& section = row_in_file("/fp16");
  EXPECT_EQ(section.fallback, "{}");
  EXPECT_TRUE(!section.takes_null && !section.takes_auto && !section.model);
  EXPECT_TRUE(row_in_file("/aio").takes_null);
  EXPECT_TRUE(row_in_file("/comms_logger").closed);
}

TEST(KeyRowsTest, SpellDefaultsAsPeopleDo) {
  EXPECT_EQ(row_in_file("/optimizer/params/eps").fallback, "1e-8");
  EXPECT_EQ(row_in_file("/optimizer/params/betas").fallback, "[0.9, 0.999]");
  EXPECT_EQ(row_in_file("/gradient_clipping").fallback, "1.0");
}

TEST(KeyRowsTest, AreThoseThatAReleaseKnows) {
  const std::vector<Key> all = {row_of(KnobType::boolean, "/old", {}, {0, 19, 7}),
                                row_of(KnobType::boolean, "/always"),
                                row_of(KnobType::boolean, "/new", {0, 19, 10})};
  EXPECT_THAT(pointers_of(rows_of({0, 19, 6}, all)), ElementsAre("/old", "/always"));
  EXPECT_THAT(pointers_of(rows_of({0, 19, 7}, all)), ElementsAre("/always"));
  EXPECT_THAT(pointers_of(rows_of({0, 19, 10}, all)), ElementsAre("/always", "/new"));
}

TEST(KeyRowsTest, HaveTheDefaultAndTheRangeOfTheirRelease) {
  Key key = row_of(KnobType::number, "/gradient_clipping");
  key.fallback = "1.0";
  key.low = 1;
  key.former = {{{{0, 16, 9}, "0.5", 0.0}, {{0, 19, 6}, "0", {}}}};
  const auto row_in = [&](Version version) {
    return rows_of(version, std::vector<Key>{key}).front();
  };
  EXPECT_EQ(row_in({0, 15, 4}).fallback, "0.5");
  EXPECT_EQ(row_in({0, 15, 4}).low, 0);
  EXPECT_EQ(row_in({0, 19, 0}).fallback, "0");
  EXPECT_EQ(row_in({0, 19, 0}).low, 1);
  EXPECT_EQ(row_in({0, 19, 6}).fallback, "1.0");
}

TEST(KeyRowsTest, HaveARowForEachOtherName) {
  const Knob* const alias = table_0_19_6().find_knob("/zero_optimization/prefetch_bucket_size");
  ASSERT_NE(alias, nullptr);
  EXPECT_EQ(alias->alias_of, "/zero_optimization/stage3_prefetch_bucket_size");
  EXPECT_EQ(alias->help, "another name of stage3_prefetch_bucket_size");
  TrainingConfig config;
  alias->apply(config, std::int64_t{7});
  EXPECT_EQ(config.stage3_prefetch_bucket_size, 7);
  const Knob* const member = table_0_19_6().find_knob("/bfloat16/enabled");
  ASSERT_NE(member, nullptr);
  EXPECT_EQ(member->alias_of, "/bf16/enabled");
}

/// "row presence values, sound or not" of each row, in the order in which they were handed over.
std::vector<std::string> reading_of(const KeyTable& table, const std::string& text) {
  const auto document = json::Document::parse(text, "keys.json");
  json::Problems problems;
  std::vector<std::string> found;
  table.read(document.node(), problems, [&](const KeyReading& reading) {
    if (reading.presence == Presence::absent) return;
    found.push_back(std::string(last_key(table.keys()[reading.row].pointer)) + " " +
                    std::to_string(reading.values.size()) + (reading.is_sound ? "" : " unsound"));
  });
  return found;
}

TEST(KeyReaderTest, HandsOverMembersBeforeTheirSection) {
  std::vector<Key> keys = {row_of(KnobType::object, "/section"),
                           row_of(KnobType::integer, "/section/sizes"),
                           row_of(KnobType::boolean, "/section/flag")};
  keys[0].closed = keys[1].is_listable = true;
  const KeyTable by_row(keys, KeyTable::Order::of_rows);
  const KeyTable by_document(keys, KeyTable::Order::of_document);
  const std::string text = R"({"section": {"flag": true, "sizes": [1, 2]}})";
  EXPECT_THAT(reading_of(by_row, text), ElementsAre("sizes 2", "flag 1", "section 1"));
  EXPECT_THAT(reading_of(by_document, text), ElementsAre("flag 1", "sizes 2", "section 1"));
  EXPECT_THAT(reading_of(by_row, R"({"section": {"flag": 3}})"),
              ElementsAre("flag 0 unsound", "section 1 unsound"));
}

TEST(KeyReaderTest, TakesTheFormThatAValueHas) {
  const KeyTable table({row_of(KnobType::text, "/model"), row_of(KnobType::object, "/model"),
                        row_of(KnobType::integer, "/model/size")},
                       KeyTable::Order::of_document);
  EXPECT_THAT(reading_of(table, R"({"model": "gpt2"})"), ElementsAre("model 1"));
  EXPECT_THAT(reading_of(table, R"({"model": {"size": 3}})"), ElementsAre("size 1", "model 1"));
  EXPECT_THAT(reading_of(table, R"({"model": 3})"), testing::IsEmpty());
}

}  // namespace
}  // namespace dstune
