// Tables of keys, and the reader that all of them share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config_cases.hpp"
#include "dstune/core/key_words.hpp"
#include "dstune/core/settings.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;

Key known(Key key, Version since, Version until) {
  key.since = since;
  key.until = until;
  return key;
}

std::vector<std::string_view> pointers_of(const std::vector<Key>& rows) {
  std::vector<std::string_view> pointers;
  for (const Key& row : rows) pointers.push_back(row.pointer);
  return pointers;
}

TEST(KeyRowsTest, AreThoseThatAReleaseKnows) {
  const std::vector<Key> rows = {rows::flag("/old", "false", rows::inert, "gone"),
                                 rows::flag("/always", "false", rows::inert, "there"),
                                 rows::flag("/new", "false", rows::inert, "came")};
  const std::vector<Key> all = {known(rows[0], {}, {0, 19, 7}), rows[1],
                                known(rows[2], {0, 19, 10}, {})};
  EXPECT_THAT(pointers_of(rows_of({0, 19, 6}, all)), ElementsAre("/old", "/always"));
  EXPECT_THAT(pointers_of(rows_of({0, 19, 7}, all)), ElementsAre("/always"));
  EXPECT_THAT(pointers_of(rows_of({0, 19, 10}, all)), ElementsAre("/always", "/new"));
}

TEST(KeyRowsTest, HaveTheDefaultAndTheRangeOfTheirRelease) {
  Key key = rows::number("/gradient_clipping", "1.0", 1, rows::unbounded, rows::measured, "norm");
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
  EXPECT_EQ(alias->apply, table_0_19_6().find_knob(alias->alias_of)->apply);
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
  const std::vector<Key> keys = {
      rows::closed(rows::section("/section", rows::inert, "section")),
      rows::listable(rows::integer("/section/sizes", "null", 1, rows::inert, "sizes")),
      rows::flag("/section/flag", "false", rows::inert, "flag")};
  const KeyTable by_row(keys, KeyTable::Order::of_rows);
  const KeyTable by_document(keys, KeyTable::Order::of_document);
  const std::string text = R"({"section": {"flag": true, "sizes": [1, 2]}})";
  EXPECT_THAT(reading_of(by_row, text), ElementsAre("sizes 2", "flag 1", "section 1"));
  EXPECT_THAT(reading_of(by_document, text), ElementsAre("flag 1", "sizes 2", "section 1"));
  EXPECT_THAT(reading_of(by_row, R"({"section": {"flag": 3}})"),
              ElementsAre("flag 0 unsound", "section 1 unsound"));
}

TEST(KeyReaderTest, TakesTheFormThatAValueHas) {
  const KeyTable table({rows::text("/model", "null", "", rows::inert, "name"),
                        rows::optional(rows::section("/model", rows::inert, "object")),
                        rows::integer("/model/size", "null", 1, rows::inert, "size")},
                       KeyTable::Order::of_document);
  EXPECT_THAT(reading_of(table, R"({"model": "gpt2"})"), ElementsAre("model 1"));
  EXPECT_THAT(reading_of(table, R"({"model": {"size": 3}})"), ElementsAre("size 1", "model 1"));
  EXPECT_THAT(reading_of(table, R"({"model": 3})"), testing::IsEmpty());
}

}  // namespace
}  // namespace dstune
