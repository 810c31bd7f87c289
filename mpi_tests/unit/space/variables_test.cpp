/// Documents with their dstune.variables replaced, or what is wrong: data/variables.txt.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "golden.hpp"
#include "sections/sections.hpp"

namespace dstune {
namespace {

std::string replaced(const std::string& text) {
  const auto document = json::Document::parse(text, "space.json");
  const auto section = document.node().find("dstune");
  const auto variables = section ? section->find("variables") : std::nullopt;
  json::Problems problems;
  json::Value value =
      replace_variables(document.node(), variables ? &*variables : nullptr, problems);
  value["dstune"].erase("variables");
  std::vector<std::string> lines;
  for (const Problem& problem : problems.all())
    lines.push_back(fmt::format("{} {}: {}", problem.line, problem.pointer, problem.message));
  return lines.empty() ? value.dump() : fmt::format("{}", fmt::join(lines, "\n"));
}

TEST(VariablesTest, AreReplacedOrRefused) {
  test::expect_golden(DSTUNE_SPACE_DATA "/variables.txt", replaced);
}

}  // namespace
}  // namespace dstune
