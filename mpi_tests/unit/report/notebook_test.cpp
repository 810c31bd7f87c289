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

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream read;
  read << file.rdbuf();
  EXPECT_TRUE(file) << path;
  return read.str();
}

std::set<std::string> columns_of_table() {
  test::Draft draft;
  draft.rows = {test::row_of(test::sample_record("a", 1, 0)),
                test::row_of(test::sample_record("b", 1, 3))};
  const std::string table = results_csv(test::Concluded(draft));
  return words_of(table.substr(0, table.find('\r')), "([^,]+)");
}

std::set<std::string> columns_in(const std::string& python) {
  std::set<std::string> used = words_of(python, "\"([a-z_]+)\"");
  used.merge(words_of(python, "\\bran\\.([a-z_]+)\\b(?!\\()"));
  for (const char* function : {"plot", "loc", "o"}) used.erase(function);
  return used;
}

// Columns that the lines add are not in the table; words of pandas are no columns.
TEST(NotebookTest, ItsColumnsAreThoseOfTheTable) {
  std::set<std::string> columns = columns_of_table();
  EXPECT_TRUE(columns.contains("zero_optimization.stage")) << "\".stage\" is left out of the knobs";
  columns.insert({"score", "memory", "best"});
  std::set<std::string> used = columns_in(text_of_file(DSTUNE_NOTEBOOK));
  for (const char* word : {"latency", "viridis"}) EXPECT_EQ(used.erase(word), 1U) << word;
  EXPECT_GT(used.size(), 12U);
  for (const std::string& name : used) EXPECT_TRUE(columns.contains(name)) << name;
}

TEST(NotebookTest, ColumnsInTheManualAreThoseOfTheTable) {
  const std::string page = text_of_file(DSTUNE_FILES_PAGE);
  const std::size_t begin = page.find("```python\nimport pandas");
  ASSERT_NE(begin, std::string::npos);
  const std::set<std::string> columns = columns_of_table();
  const std::set<std::string> used =
      columns_in(page.substr(begin, page.find("```\n", begin) - begin));
  EXPECT_GT(used.size(), 4U);
  for (const std::string& name : used) EXPECT_TRUE(columns.contains(name)) << name;
}

}  // namespace
}  // namespace dstune
