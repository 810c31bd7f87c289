#pragma once
/// A controller over workers in memory and a journal in a folder of its own.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "control/controller.hpp"
#include "dstune/search/tuner.hpp"
#include "fake_workers.hpp"
#include "profile/prediction.hpp"

namespace dstune {

/// Takes members in order, and wants to know how all but the last `num_running` ended.
class CautiousTuner : public Tuner {
 public:
  CautiousTuner(std::size_t count, std::size_t num_running)
      : count_(count), num_running_(num_running) {}
  std::optional<std::size_t> next() override {
    if (asked_ == count_) return std::nullopt;
    EXPECT_LT(asked_ - observed_, num_running_) << "chosen while no rank was idle";
    return asked_++;
  }
  void observe(std::size_t, const Observation&) override { ++observed_; }
  [[nodiscard]] bool is_done() const override { return asked_ == count_; }
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }
  [[nodiscard]] std::vector<Skipped> skipped() const override { return {}; }
  [[nodiscard]] std::optional<double> chance_of_better() const override { return 0.25; }

 private:
  std::size_t count_, num_running_, asked_ = 0, observed_ = 0;
};

/// What a test may ask for.
struct SearchSettings {
  bool races = false;
  bool repeats_best = false;
  std::optional<SteadyClock::time_point> end_at{};
  std::function<int()> signals{};
  ProcessMemoryPredictor* memory = nullptr;
  ScoreboardSetup scoreboard{};
  std::function<Overheads(const Experiment&)> overheads{};
  AttemptDriver::LostRanks lost_ranks{};
  double inactivity_timeout_s = 60;
  std::shared_ptr<ProgressSink> progress{};        ///< none: it is silent
  std::function<void(const Controller&)> watch{};  ///< again and again, while it runs
  SteadyClock::time_point began = SteadyClock::now();
  std::set<int> ranks_here{};
  std::optional<RankBytes> built_bytes{};  ///< nothing: no finalist stays built
};
struct SearchRun {
  ExitCode code;
  Scoreboard scoreboard;
  std::set<int> lost;
  std::string reason;
};

class ControllerTest : public testing::Test {
 protected:
  using Settings = SearchSettings;
  using Run = SearchRun;

  void SetUp() override {
    std::string pattern = testing::TempDir() + "dstune_controller_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A space of micro-batches 1, 2, 4, … on groups of these sizes.
  static PlannedSpace space(int num_micro_batches, const std::vector<int>& sizes) {
    PlannedSpace space;
    for (const int size : sizes)
      for (int i = 0; i < num_micro_batches; ++i)
        add_member(space, fmt::format("z0_gas1_tmbspg{}_ng{}", 1 << i, size), size, 1 << i);
    return space;
  }
  static void add_member(PlannedSpace& space, const std::string& name, int num_gpus,
                         std::int64_t micro_batch) {
    Experiment& experiment = space.members.emplace_back().planned.experiment;
    experiment.name = name;
    experiment.shape = {num_gpus, 1};
    experiment.config.micro_batch = micro_batch;
    experiment.ds_config = {{"train_micro_batch_size_per_gpu", micro_batch}};
    space.total = space.planned = space.members.size();
  }

  Run run(const PlannedSpace& space, FakeWorkers& workers, int ranks, const Settings& settings = {},
          Tuner* given = nullptr) {
    std::vector<std::string> keys;
    for (const PlannedMember& member : space.members) {
      keys.push_back("key-" + member.planned.experiment.name);
    }
    ResultsFolder results(folder_ + "/results", folder_ + "/exps");
    const JournalContent content = read_journal(results.journal_path());
    const History history = understand(content, results.journal_path());
    Journal journal(results.journal_path(), content.valid_bytes);
    journal.add(event::job_started(json::Value::object()));
    std::vector<int> slots_of_node(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) slots_of_node[static_cast<std::size_t>(rank)] = rank;
    SlotPool slots({slots_of_node});
    const auto made = make_tuner(settings.races ? "race" : "gridsearch", space, {});
    Tuner& tuner = given != nullptr ? *given : *made;
    Progress progress(
        {.style = settings.progress ? Progress::Style::lines : Progress::Style::silent},
        settings.progress ? settings.progress : std::make_shared<StderrSink>());
    Scoreboard scoreboard = known_scoreboard(space, keys, history, settings.scoreboard);
    RunAgainPolicy run_again(scoreboard, {.races = settings.races,
                                          .repeats_best = settings.repeats_best,
                                          .is_alone_in_space = space.planned <= 1,
                                          .deaths = deaths_in_repeats(keys, history)});
    Publisher publisher(results, scoreboard, {.began = settings.began});
    AttemptDriver driver(workers, {.share_a_node = [](const auto&, const auto&) { return true; }},
                         settings.lost_ranks);
    JobPolicy policy{.search_name = "with the built-in step", .ranks_here = settings.ranks_here};
    policy.limits = [&](const PlannedExperiment&) {
      return Attempts::Limits{.inactivity_timeout_s = settings.inactivity_timeout_s,
                              .abort_grace_s = 0.1};
    };
    const Controller* running = nullptr;
    policy.end = {settings.end_at, [&] {
                    if (settings.watch && running != nullptr) settings.watch(*running);
                    return settings.signals ? settings.signals() : 0;
                  }};
    Controller controller({space, keys, history, scoreboard, run_again, tuner, slots,
                           settings.races, false, settings.built_bytes},
                          policy, driver,
                          {.journal = journal,
                           .publisher = publisher,
                           .progress = progress,
                           .memory = settings.memory,
                           .overheads = settings.overheads});
    running = &controller;
    const ExitCode code = controller.run();
    return {code, scoreboard, driver.attempts().lost_ranks(), controller.reason()};
  }

  std::string folder_;
};

}  // namespace dstune
