/// Configs in files of several kinds and names, and their documents, notes and problems:
/// data/config_documents.txt. The first line of a case is the file's name. Other files of the
/// folder are made by the test.
#include "dstune/space/config_document.hpp"

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "dstune/space/config_check.hpp"
#include "golden.hpp"
#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigDocumentTest : public SpaceTest {
 protected:
  void SetUp() override {
    write("ds.json",
          "{\n"
          "  \"zero_optimization\": {\"stage\": \"auto\",\n"
          "    \"offload_param\": {\"device\": \"auto\"}},\n"
          "  \"bf16\": {\"enabled\": \"auto\"},\n"
          "  \"fp16\": {\"enabled\": \"auto\"}\n"
          "}\n");
    write("no_zero.json", "{\"train_batch_size\": 8}\n");
    write("bf16.json", "{\"zero_optimization\": {\"stage\": 1}, \"bf16\": {\"enabled\": true}}\n");
    write("broken.json", "{\"a\": 1, \"b\" 2}\n");
  }

  std::string without_folder(std::string text) {
    const std::string folder = folder_.string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;)
      text.erase(at, folder.size());
    return text;
  }

  /// The document, the ranks and the notes, or the problems.
  std::string answer(const std::string& input) {
    const std::size_t end = input.find('\n');
    const std::string path = write(input.substr(0, end), input.substr(end + 1) + "\n");
    std::vector<std::string> lines;
    try {
      const ConfigFile file = read_config_file(path);
      lines.push_back(file.document.root().dump());
      if (file.shape)
        lines.push_back(fmt::format("{} ranks on {}", file.shape->num_gpus, file.shape->num_nodes));
      for (const Problem& note : file.notes) lines.push_back("note: " + note.text());
    } catch (const InputError& error) {
      for (const Problem& problem : error.problems()) lines.push_back(problem.text());
    }
    return without_folder(fmt::format("{}", fmt::join(lines, "\n")));
  }

  /// The texts of a job's problems.
  std::vector<std::string> job_problems(const std::string& name, const std::string& text) {
    try {
      Overrides overrides;
      overrides.model = "gpt2";
      overrides.deepspeed_version = version_;
      (void)read_job(write(name, text), overrides, machine_, 1);
    } catch (const InputError& error) {
      std::vector<std::string> texts;
      for (const Problem& problem : error.problems())
        texts.push_back(without_folder(problem.text()));
      return texts;
    }
    return {};
  }
};

TEST_F(ConfigDocumentTest, IsReadOrRefusedForWhatItIs) {
  test::expect_golden(DSTUNE_SPACE_DATA "/config_documents.txt",
                      [this](const std::string& input) { return answer(input); });
}

TEST_F(ConfigDocumentTest, AWrongValueIsNamedWhereTheFileHasIt) {
  EXPECT_THAT(job_problems("a.yaml",
                           "distributed_type: DEEPSPEED\n"
                           "deepspeed_config:\n"
                           "  zero_stage: 5\n"
                           "  offload_optimizer_device: gpu\n"),
              ElementsAre(HasSubstr("a.yaml:3: /deepspeed_config/zero_stage: "),
                          HasSubstr("a.yaml:4: /deepspeed_config/offload_optimizer_device: ")));
  EXPECT_THAT(job_problems("plain.yml", "zero_optimization:\n  stage: 5\n"),
              ElementsAre(HasSubstr("plain.yml:2: /zero_optimization/stage: ")));
  write("wrong.json", "{\n\"zero_optimization\": {\n  \"stage\": 2,\n  \"overlap_comm\": 7}\n}\n");
  EXPECT_THAT(
      job_problems("b.yaml",
                   "distributed_type: DEEPSPEED\n"
                   "deepspeed_config:\n"
                   "  deepspeed_config_file: wrong.json\n"
                   "dstune:\n"
                   "  sequence_length: no number\n"),
      testing::UnorderedElementsAre(HasSubstr("wrong.json:4: /zero_optimization/overlap_comm: "),
                                    HasSubstr("b.yaml:5: /dstune/sequence_length: ")));
}

TEST_F(ConfigDocumentTest, ABatchIsNamedAtItsOwnPlace) {
  write("batch.json",
        "{\n\"zero_optimization\": {\"stage\": 2},\n\"train_batch_size\": 256,\n"
        "\"train_micro_batch_size_per_gpu\": [3]}\n");
  EXPECT_THAT(job_problems("a.yaml",
                           "distributed_type: DEEPSPEED\n"
                           "num_processes: 7\n"
                           "deepspeed_config:\n"
                           "  deepspeed_config_file: batch.json\n"),
              ElementsAre(HasSubstr("batch.json:3: /train_batch_size: 256 is not ")));
  const std::vector<Problem> notes = read_config_file((folder_ / "a.yaml").string()).notes;
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes.front().text(), HasSubstr("batch.json:1: gradient_accumulation_steps is not "
                                              "there: accelerate writes 1"));
  EXPECT_THAT(job_problems("b.yaml",
                           "distributed_type: DEEPSPEED\n"
                           "num_processes: 7\n"
                           "deepspeed_config:\n"
                           "  zero_stage: 2\n"
                           "autotuning:\n"
                           "  max_train_batch_size: 5\n"),
              ElementsAre(HasSubstr("b.yaml:6: /autotuning/max_train_batch_size: leaves no")));
}

/// A key that no file has is named beside the place that stands for it.
TEST_F(ConfigDocumentTest, AKeyThatIsNotWrittenIsNamed) {
  const std::string path = write("a.yaml",
                                 "distributed_type: DEEPSPEED\n"
                                 "mixed_precision: bf16\n");
  const CheckedConfig checked =
      check_config(read_config_document(path), {.release = Version{0, 19, 8}});
  std::vector<std::string> found;
  for (const Finding& finding : checked.findings.all())
    found.push_back(finding.problem.pointer + ": " + finding.problem.message);
  EXPECT_THAT(found, Contains(HasSubstr("/mixed_precision: /bf16/")));
}

TEST_F(ConfigDocumentTest, AJobHasTheFilesRanksUnlessItsMachineIsKnown) {
  const std::string path = write("a.yaml",
                                 "distributed_type: DEEPSPEED\n"
                                 "num_machines: 2\n"
                                 "num_processes: 8\n"
                                 "mixed_precision: bf16\n");
  Overrides overrides;
  overrides.model = "gpt2";
  overrides.deepspeed_version = version_;
  const JobSpec alone = read_job(path, overrides, std::nullopt, 1);
  EXPECT_THAT(alone.shapes, ElementsAre(GroupShape{4, 2}));
  EXPECT_EQ(alone.ds_config["bf16"]["enabled"], true);
  const JobSpec here = read_job(path, overrides, Machine{{2}}, 1);
  EXPECT_THAT(here.shapes, ElementsAre(GroupShape{2, 1}));
  EXPECT_THAT(here.warnings, Contains(HasSubstr("starts 8 ranks, and groups take 2 ranks here")));
}

}  // namespace
}  // namespace dstune
