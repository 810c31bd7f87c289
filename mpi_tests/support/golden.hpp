#pragma once
/// Files of inputs and what they give, so that a message is pinned once. A case is lines that begin
/// with "> ", the input, and below them the answer up to an empty line. Lines that begin with "#"
/// are comments. DSTUNE_UPDATE_GOLDEN=1 writes the answers anew.

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace dstune::test {

/// Expects answer(input) for every case; an answer has no empty line.
inline void expect_golden(const std::string& path,
                          const std::function<std::string(const std::string&)>& answer) {
  const bool is_updated = std::getenv("DSTUNE_UPDATE_GOLDEN") != nullptr;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::ostringstream anew;
  std::string input, expected;
  int num_cases = 0;
  const auto end_case = [&] {
    if (input.empty()) return;
    const std::string found = answer(input.substr(0, input.size() - 1)) + "\n";
    anew << found;
    if (!is_updated) {
      EXPECT_EQ(found, expected) << input;
    }
    input.clear();
    expected.clear();
    ++num_cases;
  };
  for (std::string line; std::getline(file, line);) {
    const bool is_input = line.starts_with(">");
    if (!is_input && !line.empty() && !line.starts_with("#")) {
      expected += line + "\n";
      continue;
    }
    if (!is_input || !expected.empty()) end_case();
    anew << line << "\n";
    if (is_input) input += (line.size() > 2 ? line.substr(2) : "") + "\n";
  }
  end_case();
  EXPECT_GT(num_cases, 0) << path;
  if (is_updated) std::ofstream(path) << anew.str();
}

}  // namespace dstune::test
