/// The verdicts of `check` against those of releases of DeepSpeed on the same configs, which
/// scripts/tools/deepspeed_verdicts.py has recorded: changes of configs of our own, and public
/// files where the variable DSTUNE_WORLD names their folder.

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "dstune/space/config_check.hpp"
#include "dstune/space/config_document.hpp"

namespace dstune {
namespace {

constexpr Version recorded_releases[] = {
    {0, 14, 5}, {0, 16, 9}, {0, 18, 9}, {0, 19, 6}, {0, 19, 8}};

json::Value read_data(const std::string& name) {
  return json::Document::read(DSTUNE_SPACE_DATA "/" + name).root();
}

/// A config, and what the release said of it.
struct Case {
  std::string text{};
  int ranks = 0;
  std::string refusal{};  ///< empty: taken
  std::string name{};
};

/// Reasons for which a config is refused here that DeepSpeed takes.
struct Difference {
  const char* why;
  bool (*applies)(const Case&, const Finding&);
};
constexpr Difference refused_here_alone[] = {
    {"a top-level key within two edits of a known one is an error: DeepSpeed drops it in silence",
     [](const Case&, const Finding& finding) { return finding.kind == FindingKind::mistyped; }},
};

std::string text_of(const Finding& finding) {
  return fmt::format("{} {}: {}", to_text(finding.kind), finding.problem.pointer,
                     finding.problem.message);
}

std::vector<Finding> errors_of(const CheckedConfig& checked) {
  std::vector<Finding> errors;
  for (const Finding& finding : checked.findings.all())
    if (severity_of(finding) == Severity::error) errors.push_back(finding);
  return errors;
}

class VerdictsTest : public testing::TestWithParam<std::size_t> {
 protected:
  static Version release() { return recorded_releases[GetParam()]; }

  /// The words of a refusal; row: the verdicts of all releases.
  static std::string refusal_in(const json::Value& row, const json::Value& refusals) {
    const int number = row.at(GetParam()).get<int>();
    return number == 0 ? "" : refusals.at(static_cast<std::size_t>(number) - 1).get<std::string>();
  }

  template <class Read>
  void compare(const Case& said, const Read& read) {
    std::vector<Finding> errors;
    try {
      const ConfigCheck known{.release = release(), .data_parallel_ranks = said.ranks};
      errors = errors_of(check_config(read(), known));
    } catch (const InputError& error) {
      for (const Problem& problem : error.problems())
        errors.push_back({FindingKind::refused, problem});
    }
    (said.refusal.empty() ? taken_ : refused_) += 1;
    if (errors.empty() == said.refusal.empty()) return;
    if (errors.empty()) {
      taken_here_.push_back("taken here: " + said.refusal + "\n" + said.name + " " + said.text);
      return;
    }
    for (const Finding& finding : errors) {
      const bool is_known = std::ranges::any_of(
          refused_here_alone,
          [&](const Difference& difference) { return difference.applies(said, finding); });
      if (is_known) continue;
      refused_here_.push_back("refused here: " + text_of(finding) + "\n" + said.name + " " +
                              said.text);
      return;
    }
  }

  /// `known`: so many differences have no reason, and wait for a mend.
  static void expect_known(const std::vector<std::string>& differences, std::size_t known) {
    if (differences.size() == known) return;
    for (const std::string& difference : differences) std::printf("%s\n", difference.c_str());
    ADD_FAILURE() << differences.size() << " differences, " << known << " are known";
  }

  int taken_ = 0, refused_ = 0;
  std::vector<std::string> taken_here_, refused_here_;
};

INSTANTIATE_TEST_SUITE_P(Releases, VerdictsTest, testing::Range(std::size_t{0}, std::size_t{5}),
                         [](const auto& index) {
                           std::string name = "v" + to_text(recorded_releases[index.param]);
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST_P(VerdictsTest, OfChangedConfigs) {
  const json::Value recorded = read_data("verdicts.json");
  const json::Value bases = read_data("verdict_bases.json");
  const json::Value& verdicts = recorded.at("verdicts");
  Case said{.ranks = recorded.at("ranks")};
  std::size_t row = 0;
  const auto take = [&](std::string name, std::string text) {
    said.refusal = refusal_in(verdicts.at(row++), recorded.at("refusals"));
    said.name = std::move(name);
    said.text = std::move(text);
    compare(said, [&] { return json::Document::parse_either(said.text, "ds.json"); });
  };
  std::ifstream lines(DSTUNE_SPACE_DATA "/verdict_cases.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const json::Value change = json::Value::parse(line);
    const auto& base = change.at("base").get_ref<const std::string&>();
    take(line, bases.at(base).patch(change.at("patch")).dump());
  }
  for (const json::Value& text : read_data("verdict_texts.json")) take("text", text);
  EXPECT_EQ(row, verdicts.size());
  EXPECT_GE(taken_, 900);
  EXPECT_GE(refused_, 700);
  constexpr std::size_t to_mend[][2] = {{51, 239}, {33, 234}, {44, 232}, {47, 210}, {25, 228}};
  expect_known(taken_here_, to_mend[GetParam()][0]);
  expect_known(refused_here_, to_mend[GetParam()][1]);
}

TEST_P(VerdictsTest, OfPublicFiles) {
  const char* const world = std::getenv("DSTUNE_WORLD");
  if (world == nullptr) GTEST_SKIP() << "DSTUNE_WORLD names no folder";
  const json::Value recorded = read_data("world_verdicts.json");
  for (const json::Value& file : recorded.at("files")) {
    const std::string path = fmt::format("{}/{}", world, file.at("file").get<std::string>());
    if (!std::filesystem::exists(path)) continue;
    const Case said{"", file.at("ranks"), refusal_in(file.at("verdicts"), recorded.at("refusals")),
                    path};
    compare(said, [&] { return read_config_file(path).document; });
  }
  EXPECT_GT(taken_, 0);
  constexpr std::size_t to_mend[][2] = {{2, 0}, {2, 0}, {3, 0}, {3, 0}, {3, 12}};
  expect_known(taken_here_, to_mend[GetParam()][0]);
  expect_known(refused_here_, to_mend[GetParam()][1]);
}

}  // namespace
}  // namespace dstune
