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
    {"the section autotuning is this program's own input: what it can not read is an error",
     [](const Case&, const Finding& finding) {
       return finding.problem.pointer.starts_with("/autotuning");
     }},
    {"numbers beyond 64 bits: Python's integers have no end",
     [](const Case&, const Finding& finding) {
       const std::string& message = finding.problem.message;
       const std::size_t got = message.rfind("got ");
       return got != message.npos && std::atof(message.c_str() + got + 4) > 9.2e18;
     }},
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
    bool is_tuned = false;
    try {
      const ConfigCheck known{.release = release(), .data_parallel_ranks = said.ranks};
      const json::Document document = read();
      const json::Value::json_pointer enabled("/autotuning/enabled");
      is_tuned =
          document.root().is_object() && document.root().value(enabled, json::Value()) == true;
      errors = errors_of(check_config(document, known));
    } catch (const InputError& error) {
      for (const Problem& problem : error.problems())
        errors.push_back({FindingKind::refused, problem});
    }
    ++counts_[said.refusal.empty()][errors.empty()];
    if (errors.empty() == said.refusal.empty()) return;
    if (errors.empty()) {
      // The autotuner that is on finds them.
      if (is_tuned && said.refusal.find("needs to be provided") != std::string::npos) return;
      ADD_FAILURE() << "taken here: " << said.refusal << "\n" << said.name << " " << said.text;
      return;
    }
    for (const Finding& finding : errors) {
      const bool is_known = std::ranges::any_of(
          refused_here_alone,
          [&](const Difference& difference) { return difference.applies(said, finding); });
      EXPECT_TRUE(is_known) << "refused here: " << text_of(finding) << "\n"
                            << said.name << " " << said.text;
    }
  }

  /// For scripts/tools/deepspeed_verdicts.py, which makes a table of it.
  void tell(const char* configs) const {
    const auto& [refused, taken] = counts_;
    std::printf("| %s | %s | %d | %d | %d | %d | %d |\n", configs, to_text(release()).c_str(),
                refused[0] + refused[1] + taken[0] + taken[1], refused[0] + refused[1],
                refused[0] + taken[0], refused[1], taken[0]);
  }

  int counts_[2][2] = {};  ///< taken by DeepSpeed, taken here
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
  EXPECT_GE(counts_[0][0], 700);
  EXPECT_GE(counts_[1][1], 800);
  tell("changed");
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
  EXPECT_GT(counts_[1][1], 0);
  tell("public");
}

}  // namespace
}  // namespace dstune
