// The same command goes on where the last run ended, however it ended.
#include <algorithm>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

constexpr int sizes = 2;
constexpr int micro_batches = 4;

class ResumeTest : public JobTest {
 protected:
  /// Eight experiments of about a second, four at once at first. The last one wins by far.
  ResumeTest() {
    ranks_ = 4;
    job_.write("space.json", space_);
  }
  void expect_answer(const Ended& ended) {
    expect_exit(job_, ended, 0);
    const Json optimal = optimal_of(job_);
    EXPECT_EQ(optimal["name"], short_name(0, micro_batches) + "_ng2");
    EXPECT_NEAR(optimal["value"].get<double>(), sizes * micro_batches / step_time_s_, 0.5);
    EXPECT_EQ(all_metrics(job_).size(), sizes * micro_batches);
  }
  /// Nothing is dispatched from the event of this number on.
  void expect_nothing_started(std::size_t from) {
    EXPECT_EQ(names_of(journal(job_), "started", from), std::vector<std::string>{});
  }

  const double step_time_s_ = 0.1;
  const Json space_ = synthetic_space({1, 2}, {1, 2, 3, 4}, step_time_s_);
  const std::string journal_ = results + "journal.jsonl";
};

TEST_F(ResumeTest, RunsWhatWasFinishedBeforeKillNineNotAgain) {
  Process process = start_and_wait(2);
  process.kill_all();
  const Ended killed = process.wait();
  ASSERT_FALSE(killed.is_late) << killed;
  ASSERT_FALSE(job_.exists(results + "exit_status.json")) << "it ended before it was killed";
  const int finished_before = num_finished_so_far(job_);
  ASSERT_GE(finished_before, 2);
  ASSERT_LT(finished_before, sizes * micro_batches);

  expect_answer(run());
  const auto events = journal(job_);
  std::vector<std::string> finished = names_of(events, "finished");
  EXPECT_EQ(finished.size(), sizes * micro_batches);
  // A name that ended before the second start is not started after it.
  std::size_t second_start = 0;
  for (std::size_t i = 1; i < events.size(); ++i)
    if (events[i]["kind"] == "job_started") second_start = i;
  ASSERT_GT(second_start, 0);
  const std::vector<std::string> again = names_of(events, "started", second_start);
  EXPECT_EQ(again.size(), static_cast<std::size_t>(sizes * micro_batches - finished_before));
  for (int i = 0; i < finished_before; ++i) {
    EXPECT_EQ(std::count(again.begin(), again.end(), finished[static_cast<std::size_t>(i)]), 0)
        << finished[static_cast<std::size_t>(i)];
  }

  // Files come some seconds after their experiment: those that the kill has cost are there, too.
  for (const std::string& name : finished) {
    for (const char* file : {"/exp.json", "/ds_config.json", "/metrics.json"})
      EXPECT_TRUE(job_.exists(results + name + file)) << name << file;
    EXPECT_TRUE(job_.exists("autotuning_exps/" + name + ".json")) << name;
  }

  const auto metrics = all_metrics(job_);
  std::filesystem::remove_all(job_.folder() / results / finished.front());
  std::filesystem::remove(job_.folder() / ("autotuning_exps/" + finished.back() + ".json"));
  expect_answer(run());
  expect_nothing_started(events.size());
  EXPECT_EQ(all_metrics(job_), metrics) << "what lacks is written from the journal";
  EXPECT_TRUE(job_.exists("autotuning_exps/" + finished.back() + ".json"));
}

TEST_F(ResumeTest, OnlyWhatWasAloneWhenTheJobDiedIsBlamed) {
  job_.write("space.json", synthetic_space({1}, {1, 2, 3, 4, 5, 6}, 0.05));
  // The first one runs on rank 0: nobody is left to end the job in order.
  const std::string killer = short_name(0, 1);
  std::string faults;
  for (const char* const rank : {"0", "1", "2", "3"})
    faults += (faults.empty() ? "die@" : ",die@") + std::string(rank) + ":" + killer;
  const auto run = [&] { return run_with({{"DSTUNE_INJECT", faults}}); };
  // Twice with others, then twice alone: nobody saw what ended the job.
  for (int death = 0; death < 4; ++death) EXPECT_NE(run().exit_code, 0) << death;
  expect_exit(job_, run(), 0);
  const auto metrics = all_metrics(job_);
  EXPECT_EQ(metrics.size(), 6);
  for (const auto& [name, measured] : metrics)
    EXPECT_EQ(measured["status"], name == killer ? "failed" : "ok") << name << measured["reason"];
  EXPECT_EQ(count_of(metrics.at(killer)["reason"], "nothing else was"), 1);
  for (const int suspect : {2, 3, 4})
    EXPECT_EQ(metrics.at(short_name(0, suspect))["alone"], true) << suspect;
}

TEST_F(ResumeTest, DropsATornTail) {
  expect_answer(run());
  const std::string whole = job_.read(journal_);
  job_.write_text(journal_, whole + R"({"bytes":431,"crc32":"0badf00d","event":{"kind":"fin)");
  const std::size_t before = static_cast<std::size_t>(count_of(whole, "\n"));
  expect_answer(run());
  expect_nothing_started(before);
  EXPECT_EQ(job_.read(journal_).substr(0, whole.size()), whole);
}

TEST_F(ResumeTest, RunsAgainWhatTheTornTailTook) {
  expect_answer(run());
  std::string text = job_.read(journal_);
  const std::size_t last_finished = text.rfind("\"kind\":\"finished\"");
  ASSERT_NE(last_finished, std::string::npos);
  // Within the line of the last result.
  job_.write_text(journal_, text.substr(0, last_finished + 40));
  const std::size_t before =
      static_cast<std::size_t>(count_of(text.substr(0, last_finished), "\n"));
  expect_answer(run());
  EXPECT_EQ(names_of(journal(job_), "started", before).size(), 1);
}

TEST_F(ResumeTest, RefusesAJournalThatIsDamagedInTheMiddle) {
  expect_answer(run());
  std::string text = job_.read(journal_);
  const std::size_t third_line = text.find('\n', text.find('\n') + 1) + 1;
  char& letter = text[text.find("\"attempt\":1", third_line) + 10];
  letter = '2';
  const int line =
      1 + count_of(text.substr(0, static_cast<std::size_t>(&letter - text.data())), "\n");
  job_.write_text(journal_, text);
  const Ended ended =
      expect_refused(job_, command(), bad_input, {"journal.jsonl:" + std::to_string(line)});
  expect_exit(job_, ended, bad_input);

  expect_answer(run({"--overwrite"}));
}

TEST_F(ResumeTest, OverwritesItsOwnFilesAlone) {
  expect_answer(run());
  const std::string own_folder = results + short_name(0, 1) + "_ng1/";
  const std::vector<std::string> foreign{results + "notes.txt", own_folder + "profile.txt",
                                         results + "z9_theirs/exp.json",
                                         "autotuning_exps/mine.json"};
  for (const std::string& name : foreign) job_.write_text(name, "keep me\n");

  Json smaller = space_;
  smaller["train_micro_batch_size_per_gpu"] = {4};
  job_.write("space.json", smaller);
  expect_exit(job_, run({"--overwrite"}), 0);
  for (const std::string& name : foreign) EXPECT_EQ(job_.read(name), "keep me\n") << name;
  EXPECT_EQ(names_of(journal(job_), "started").size(), 2) << "it starts anew";
  EXPECT_FALSE(job_.exists(own_folder + "metrics.json"));
  EXPECT_FALSE(job_.exists(results + short_name(0, 2) + "_ng1"));
  EXPECT_FALSE(job_.exists("autotuning_exps/" + short_name(0, 2) + "_ng1.json"));
}

TEST_F(ResumeTest, RunsOnlyWhatIsNewInAChangedSpace) {
  expect_answer(run());
  const std::size_t before = journal(job_).size();
  Json larger = space_;
  larger["train_micro_batch_size_per_gpu"] = {2, 4, 5};
  job_.write("space.json", larger);
  expect_exit(job_, run(), 0);
  auto started = names_of(journal(job_), "started", before);
  std::sort(started.begin(), started.end());
  EXPECT_EQ(started,
            (std::vector<std::string>{short_name(0, 5) + "_ng1", short_name(0, 5) + "_ng2"}));
  EXPECT_EQ(optimal_of(job_)["name"], short_name(0, 5) + "_ng2");
  EXPECT_EQ(results_table(job_).size(), 6);
}

TEST_F(ResumeTest, MeasuresAgainWhatChangedItsMeaning) {
  expect_exit(job_, run(), 0);
  const std::size_t before = journal(job_).size();
  Json other = space_;
  other["dstune"]["workload"]["step_time_s"] = 0.01;
  job_.write("space.json", other);
  const Ended ended = run();
  expect_exit(job_, ended, 0);
  EXPECT_EQ(names_of(journal(job_), "started", before).size(), sizes * micro_batches);
  EXPECT_THAT(ended.err, HasSubstr("autotuning_results has 8 measured experiments of another"));
  EXPECT_THAT(run().err, Not(HasSubstr("of another model")));
}

}  // namespace
}  // namespace dstune::e2e
