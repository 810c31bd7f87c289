#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

std::set<std::string> words_of(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator one(text.begin(), text.end(), expression), end; one != end; ++one)
    found.insert((*one)[1]);
  return found;
}

// Columns that the lines add are not in the table; words of pandas are no columns.
TEST(NotebookTest, ItsColumnsAreThoseOfTheTable) {
  std::ifstream file(DSTUNE_NOTEBOOK);
  std::stringstream read;
  read << file.rdbuf();
  const std::string text = read.str();
  test::Draft draft;
  draft.rows = {test::row_of(test::sample_record("a", 1, 0)),
                test::row_of(test::sample_record("b", 1, 3))};
  const std::string table = results_csv(test::Concluded(draft));
  std::set<std::string> columns = words_of(table.substr(0, table.find('\r')), "([^,]+)");
  EXPECT_TRUE(columns.contains("zero_optimization.stage")) << "\".stage\" is left out of the knobs";
  columns.insert({"score", "memory", "best"});
  std::set<std::string> used = words_of(text, "\"([a-z_]+)\"");
  used.merge(words_of(text, "\\bran\\.([a-z_]+)\\b(?!\\()"));
  for (const char* word : {"latency", "viridis", "o"}) EXPECT_EQ(used.erase(word), 1U) << word;
  for (const char* function : {"plot", "loc"}) used.erase(function);
  EXPECT_GT(used.size(), 12U);
  for (const std::string& name : used) EXPECT_TRUE(columns.contains(name)) << name;
}

}  // namespace
}  // namespace dstune
