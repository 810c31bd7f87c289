#include "dstune/tune/controller.hpp"

#include <cstdlib>
#include <filesystem>
#include <queue>
#include <set>

#include <gtest/gtest.h>

#include "dstune/search/tuner.hpp"

namespace dstune {
namespace {

enum class Behaviour { ok, out_of_memory, throws, member_throws, silent_member };

/// Workers in memory: they answer as real ones would, at once.
class FakeWorkers : public Mailbox {
 public:
  explicit FakeWorkers(std::map<std::string, Behaviour> behaviours)
      : behaviours_(std::move(behaviours)) {}

  void send(int world_rank, Bytes data) override {
    const dstune::Message message = decode(data);
    if (dead_.contains(world_rank)) return;
    if (const auto* assign = std::get_if<message::Assign>(&message)) {
      assigned(world_rank, *assign);
    } else if (const auto* go = std::get_if<message::Go>(&message)) {
      went(world_rank, go->attempt);
    } else if (const auto* abort = std::get_if<message::Abort>(&message)) {
      busy_.erase(world_rank);
      answer(world_rank, message::Gone{abort->attempt, Status::failed, "aborted"});
    }
  }
  std::optional<Mailbox::Message> try_receive() override {
    if (answers_.empty()) return std::nullopt;
    Mailbox::Message message = std::move(answers_.front());
    answers_.pop();
    return message;
  }
  bool flush(double) override { return true; }

  [[nodiscard]] bool was_slot_taken_twice() const { return was_slot_taken_twice_; }
  [[nodiscard]] const std::vector<std::string>& ran() const { return ran_; }

 private:
  void answer(int world_rank, const dstune::Message& message) {
    answers_.push({world_rank, encode(message)});
  }

  void assigned(int world_rank, const message::Assign& assign) {
    was_slot_taken_twice_ = was_slot_taken_twice_ || !busy_.insert(world_rank).second;
    assigns_[assign.attempt] = assign;
    const Behaviour behaviour = behaviours_[assign.experiment];
    const bool is_leader = assign.world_ranks.front() == world_rank;
    if (is_leader) ran_.push_back(assign.experiment);
    if (behaviour == Behaviour::out_of_memory) {
      busy_.erase(world_rank);
      if (is_leader) {
        Measurement measurement;
        measurement.status = Status::out_of_memory;
        measurement.reason = "rank 1: 10 bytes of 5";
        answer(world_rank, message::Outcome{assign.attempt, measurement});
      }
    } else if (behaviour == Behaviour::throws && is_leader) {
      busy_.erase(world_rank);
      answer(world_rank, message::Gone{assign.attempt, Status::failed, "rank 0: a bug"});
    } else if (behaviour == Behaviour::member_throws) {
      busy_.erase(world_rank);
      const std::string seen = "a member has left the group";
      answer(world_rank, message::Gone{assign.attempt, Status::failed,
                                       is_leader ? seen : "rank 1: a bug", !is_leader});
    } else if (behaviour == Behaviour::silent_member && !is_leader) {
      dead_.insert(world_rank);
    } else {
      answer(world_rank, message::Ready{assign.attempt});
    }
  }

  void went(int world_rank, std::uint64_t attempt) {
    busy_.erase(world_rank);
    const message::Assign& assign = assigns_[attempt];
    if (assign.world_ranks.front() != world_rank) return;
    Measurement measurement;
    measurement.status = Status::ok;
    // The larger the micro-batch the slower the step, but less than in proportion.
    const double step_s = 0.1 + 0.01 * static_cast<double>(assign.config.micro_batch);
    measurement.step_times_s.assign(8, step_s);
    measurement.warmup_steps = 3;
    measurement.world_ranks = assign.world_ranks;
    answer(world_rank, message::Outcome{attempt, measurement});
  }

  std::map<std::string, Behaviour> behaviours_;
  std::queue<Mailbox::Message> answers_;
  std::map<std::uint64_t, message::Assign> assigns_;
  std::set<int> busy_;
  std::set<int> dead_;
  std::vector<std::string> ran_;
  bool was_slot_taken_twice_ = false;
};

class ControllerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "dstune_controller_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A space of micro-batches 1, 2, 4, … on groups of these sizes.
  static PlannedSpace space(int num_micro_batches, const std::vector<int>& sizes) {
    PlannedSpace space;
    for (const int size : sizes) {
      for (int i = 0; i < num_micro_batches; ++i) {
        PlannedMember member;
        Experiment& experiment = member.planned.experiment;
        experiment.shape = {size, 1};
        experiment.config.micro_batch = std::int64_t{1} << i;
        experiment.name = "z0_gas1_tmbspg" + std::to_string(1 << i) + "_ng" + std::to_string(size);
        experiment.ds_config = {{"train_micro_batch_size_per_gpu", 1 << i}};
        space.members.push_back(member);
      }
    }
    space.total = space.planned = space.members.size();
    return space;
  }

  struct Run {
    ExitCode code;
    Report report;
    std::set<int> lost;
  };

  Run run(const PlannedSpace& space, FakeWorkers& workers, int ranks,
          ControllerOptions options = {}) {
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
    const auto tuner = make_tuner("gridsearch", space, {});
    Progress progress(Progress::Style::silent);
    options.patience_s = [](const Experiment&) { return 0.2; };
    options.abort_grace_s = 0.1;
    Controller controller(space, keys, history, *tuner, slots, workers, journal, results, progress,
                          options);
    const ExitCode code = controller.run();
    return {code, controller.report(), controller.lost_ranks()};
  }

  std::string folder_;
};

TEST_F(ControllerTest, RunsEveryMemberOnceAndNamesTheBest) {
  const PlannedSpace members = space(4, {1, 2});
  FakeWorkers workers({});

  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(workers.ran().size(), 8U);
  EXPECT_FALSE(workers.was_slot_taken_twice());
  const auto best = best_row(result.report);
  ASSERT_TRUE(best);
  EXPECT_EQ(result.report.rows[*best].planned.experiment.name, "z0_gas1_tmbspg8_ng2");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/ds_config_optimal.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/results/z0_gas1_tmbspg1_ng1/metrics.json"));
}

TEST_F(ControllerTest, SecondRunRunsNothing) {
  const PlannedSpace members = space(3, {1});
  FakeWorkers first({});
  run(members, first, 2);
  FakeWorkers second({});

  const Run result = run(members, second, 2);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(second.ran().empty());
  EXPECT_TRUE(best_row(result.report));
}

TEST_F(ControllerTest, OutOfMemoryIsAResultAndTheRestRuns) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg4_ng2", Behaviour::out_of_memory}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_EQ(result.report.rows[2].record->measurement.status, Status::out_of_memory);
  EXPECT_EQ(result.report.rows[1].record->measurement.status, Status::ok);
}

TEST_F(ControllerTest, EverythingFailingIsExitFour) {
  const PlannedSpace members = space(1, {1});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng1", Behaviour::out_of_memory}});

  EXPECT_EQ(run(members, workers, 1).code, ExitCode::nothing_feasible);
}

TEST_F(ControllerTest, AnExceptionOnOneRankEndsTheGroupAndKeepsTheRanks) {
  const PlannedSpace members = space(2, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::throws}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.code, ExitCode::ok);
  EXPECT_TRUE(result.lost.empty());
  EXPECT_EQ(result.report.rows[0].record->measurement.status, Status::failed);
  EXPECT_EQ(result.report.rows[0].record->measurement.reason, "rank 0: a bug");
  EXPECT_EQ(result.report.rows[1].record->measurement.status, Status::ok);
}

TEST_F(ControllerTest, WhoFailedIsBelievedAndNotWhoSawItLeave) {
  const PlannedSpace members = space(1, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::member_throws}});

  const Run result = run(members, workers, 2);

  EXPECT_TRUE(result.lost.empty());
  EXPECT_EQ(result.report.rows[0].record->measurement.reason, "rank 1: a bug");
}

TEST_F(ControllerTest, ALostRankCostsOneExperimentAndIsNotUsedAgain) {
  const PlannedSpace members = space(3, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::silent_member}});

  // Two groups of two are lost a member each (the experiment is tried twice): ranks 0 and 2 remain.
  const Run result = run(members, workers, 4);

  EXPECT_EQ(result.lost.size(), 2U);
  EXPECT_EQ(result.report.rows[0].record->measurement.status, Status::timed_out);
  EXPECT_EQ(result.report.rows[0].record->attempt, 2);
  EXPECT_EQ(result.report.rows[2].record->measurement.status, Status::ok);
  EXPECT_EQ(result.code, ExitCode::ok);
}

TEST_F(ControllerTest, LossesThatMakeASizeImpossibleEndWithSeventyFive) {
  PlannedSpace members = space(2, {2});
  FakeWorkers workers({{"z0_gas1_tmbspg1_ng2", Behaviour::silent_member}});

  const Run result = run(members, workers, 2);

  EXPECT_EQ(result.lost.size(), 1U);
  EXPECT_EQ(result.code, ExitCode::stopped_early);
}

TEST_F(ControllerTest, ASignalStopsAndTheNextRunFinishes) {
  const PlannedSpace members = space(6, {1});
  FakeWorkers workers({});
  ControllerOptions options;
  options.signals = [&] { return workers.ran().size() >= 2 ? 1 : 0; };
  const Run stopped = run(members, workers, 1, options);
  EXPECT_EQ(stopped.code, ExitCode::stopped_early);
  EXPECT_LT(workers.ran().size(), 6U);
  FakeWorkers again({});

  const Run result = run(members, again, 1);

  EXPECT_EQ(result.code, ExitCode::ok);
  for (const Row& row : result.report.rows) EXPECT_TRUE(row.record);
  EXPECT_LT(again.ran().size(), 6U);
}

}  // namespace
}  // namespace dstune
