// Reports of a scoreboard whose members are somebody else's: they are those of one that has them
// all.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/report/page.hpp"
#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

class Members : public MemberSource {
 public:
  explicit Members(std::vector<PlannedExperiment> members) : members_(std::move(members)) {}
  [[nodiscard]] std::size_t size() const override { return members_.size(); }
  [[nodiscard]] PlannedExperiment planned(std::size_t member) const override {
    return members_[member];
  }
  [[nodiscard]] PlanStatus status(std::size_t member) const override {
    return members_[member].status;
  }
  [[nodiscard]] PruneKind prune_kind(std::size_t member) const override {
    return members_[member].prune_kind;
  }
  [[nodiscard]] std::string_view reason(std::size_t member) const override {
    return members_[member].reason;
  }

 private:
  std::vector<PlannedExperiment> members_;
};

std::vector<PlannedExperiment> some_members() {
  std::vector<PlannedExperiment> members;
  for (int number = 0; number < 12; ++number) {
    PlannedExperiment& member = members.emplace_back();
    member.experiment = test::sample_experiment("m" + std::to_string(number), number % 4);
    member.predicted.peak_memory_bytes = 100 * (number + 1);
    if (number % 3 == 1) {
      member.status = PlanStatus::infeasible;
      member.reason = "needs " + std::to_string(number) + " GiB";
    } else if (number % 3 == 2) {
      member.status = PlanStatus::pruned;
      member.prune_kind = PruneKind::twin;
      member.reason = "runs exactly as m" + std::to_string(number - 1);
    }
  }
  return members;
}

/// The same events for both scoreboards.
void run(Scoreboard& scoreboard) {
  scoreboard.record(0, test::sample_record("m0", 2, 0));
  scoreboard.record(3, test::sample_record("m3", 1, 3));
  scoreboard.record(9, test::failed_record("m9", Status::out_of_memory, "too much"));
  scoreboard.repeat(3, test::repeat_of(RepeatKind::spread, 1, 1.1));
  Prediction predicted;
  predicted.throughput = 7;
  scoreboard.predict(6, predicted);
  scoreboard.prune(6, "it promises too little", PruneKind::not_chosen);
  scoreboard.verify(10,
                    test::failed_record("m10", Status::out_of_memory, "far too much").measurement);
  scoreboard.conclude(10, 0.5);
}

TEST(PackedRows, MakeTheSameReports) {
  std::vector<Row> rows;
  for (const PlannedExperiment& member : some_members()) rows.push_back({member});
  Scoreboard open({}, std::move(rows));
  Scoreboard packed({}, rows_of(std::make_shared<Members>(some_members())));
  run(open);
  run(packed);
  EXPECT_EQ(packed.rows().num_open(), 4U) << "three that ran, and one that was verified";
  const Answer of_open = answer_of(open);
  const Answer of_packed = answer_of(packed);
  EXPECT_EQ(results_csv(of_packed), results_csv(of_open));
  EXPECT_EQ(report_json(of_packed, {}, {}), report_json(of_open, {}, {}));
  EXPECT_EQ(summary_text(of_packed), summary_text(of_open));
  EXPECT_EQ(summary_json(of_packed, 0), summary_json(of_open, 0));
  EXPECT_EQ(validation_json(of_packed), validation_json(of_open));
  EXPECT_EQ(packed.rows().num_open(), 4U) << "reports open none";
}

}  // namespace
}  // namespace dstune
