// The files of a results folder that are the program's own: they alone are replaced and deleted.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "results_folder.hpp"

namespace dstune {
namespace {

using OwnFilesTest = ResultsFolderTest;

TEST_F(OwnFilesTest, DeletesAllThatItWrote) {
  write_all(folder_);
  std::ofstream(results(".dstune-123-4.tmp")) << "left by a killed process";
  std::ofstream(results("a/.dstune-123-5.tmp")) << "left by a killed process";
  folder_.delete_previous();
  EXPECT_EQ(everything(), (std::set<std::string>{"results", "exps"}));
  folder_.delete_previous();
}

TEST_F(OwnFilesTest, DeletesNothingElse) {
  write_all(folder_);
  fs::create_directories(results("notes/deep"));
  fs::create_directories(results("theirs"));
  fs::create_directories(results("posing"));
  fs::create_directories(results("optimal.json.d"));
  std::ofstream(results("a/mine.txt")) << "x";
  std::ofstream(results("notes/deep/exp.json")) << "x";
  std::ofstream(results("theirs/exp.json")) << R"({"name": "theirs", "ds_config": {}})";
  std::ofstream(results("theirs/metrics.json")) << "{}";
  std::ofstream(results("posing/exp.json")) << R"({"name": "a", "written_by": "dstune-mpi"})";
  std::ofstream(results("other.json")) << "x";
  std::ofstream(exps("theirs.json")) << "x";
  folder_.delete_previous();
  EXPECT_EQ(everything(),
            (std::set<std::string>{
                "results", "exps", "exps/.dstune-manifest.jsonl", "exps/theirs.json", "results/a",
                "results/a/mine.txt", "results/notes", "results/notes/deep",
                "results/notes/deep/exp.json", "results/theirs", "results/theirs/exp.json",
                "results/theirs/metrics.json", "results/posing", "results/posing/exp.json",
                "results/optimal.json.d", "results/other.json"}));
}

TEST_F(OwnFilesTest, DeletesWithADamagedJournalToo) {
  write_all(folder_);
  std::ofstream(folder_.journal_path(), std::ios::app) << "damage\n";
  folder_.delete_previous();
  EXPECT_EQ(everything(), (std::set<std::string>{"results", "exps"}));
}

TEST_F(OwnFilesTest, KnowsItsFilesByWhatTheyHold) {
  write_all(folder_);
  std::ofstream(results("summary.txt")) << "mine";
  std::ofstream(results("a/metrics.json")) << "{}";
  std::ofstream(exps("a.json")) << "mine";
  EXPECT_THROW(folder_.write_summary({}), IoError);
  EXPECT_THROW(folder_.write_metrics(test::sample_record("a")), IoError);
  const FolderNames asked{.results_dir = temporary_ / "results", .exps_dir = temporary_ / "exps"};
  const auto experiment_a = [](const std::set<std::string>& names) {
    return names.contains("a") ? std::set<std::string>{"a"} : std::set<std::string>{};
  };
  EXPECT_THROW((void)choose_folders(asked, experiment_a, {}), InputError);
  folder_.delete_previous();
  EXPECT_EQ(read_file(results("summary.txt")), "mine");
  EXPECT_EQ(read_file(results("a/metrics.json")), "{}");
  EXPECT_EQ(read_file(exps("a.json")), "mine");
  EXPECT_FALSE(fs::exists(results("a/exp.json")));
  EXPECT_FALSE(fs::exists(results("journal.jsonl")));
}

TEST_F(OwnFilesTest, ATornManifestLosesItsLastLineAlone) {
  write_all(folder_);
  const std::string manifest = results(".dstune-manifest.jsonl");
  const std::string text = read_file(manifest);
  fs::resize_file(manifest, text.size() - 5);
  ResultsFolder again(temporary_ / "results", temporary_ / "exps");
  again.begin();
  again.write_summary({});
  again.write_environment({{"later", 1}});
  EXPECT_TRUE(read_file(manifest).starts_with(text.substr(0, text.size() - 5) + "\n{"));
  again.delete_previous();
  EXPECT_EQ(everything(), (std::set<std::string>{"results", "exps", "results/summary.txt"}));
}

TEST_F(OwnFilesTest, FollowsNoLinkWhenDeleting) {
  const test::TemporaryFolder elsewhere;
  std::ofstream(elsewhere / "exp.json") << R"({"name": "linked", "written_by": "dstune-mpi"})";
  fs::create_directory_symlink(elsewhere.path(), results("linked"));
  folder_.delete_previous();
  EXPECT_TRUE(fs::exists(elsewhere / "exp.json"));
}

TEST_F(OwnFilesTest, WritesNothingThroughALink) {
  const test::TemporaryFolder elsewhere;
  fs::create_directory_symlink(elsewhere.path(), results("linked"));
  const Record record = test::sample_record("linked");
  EXPECT_THROW(folder_.write_experiment(record.experiment), IoError);
  EXPECT_THROW(folder_.write_metrics(record), IoError);
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
}

TEST_F(OwnFilesTest, KnowsTheNamesOfItsOwnFiles) {
  for (const char* name : {"lock", "journal.jsonl", "summary.txt", "verify", "exit_status.json",
                           "optimal.json", "optimal", "environment", "library_choices"})
    EXPECT_TRUE(is_own_file_name(name)) << name;
  for (const char* name : {"z0_gas1_tmbspg1", "baseline", "journal", "locks"})
    EXPECT_FALSE(is_own_file_name(name)) << name;
}

}  // namespace
}  // namespace dstune
