#pragma once
/// What tests of the search share: observations, sizes, and jobs from documents in a folder of
/// their own.

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"
#include "folder_test.hpp"

namespace dstune {

/// A run that ended so.
inline Observation ended(Status status, std::optional<double> value = {}) {
  if (!value) return {status, std::nullopt};
  return {status, MetricValue{*value, *value, *value}};
}
inline Observation ok(double value) {
  return ended(Status::ok, value);
}

/// One that was timed to within so much.
inline Observation around(double value, double share = 0.01) {
  return {Status::ok, MetricValue{value, (1 - share) * value, (1 + share) * value}};
}

/// Knobs that differ between the members of a test.
struct MemberKnobs {
  int zero_stage = 0;
  std::int64_t micro_batch = 1;
  std::int64_t accumulation_steps = 1;
  Recompute recompute = Recompute::none;
  std::int64_t reduce_bucket_size = 500'000'000;
};

/// Adds a member to a space.
inline PlannedMember& add_member(PlannedSpace& space, const MemberKnobs& knobs,
                                 const GroupShape& shape = {2, 1},
                                 std::optional<std::uint64_t> chain = {}) {
  PlannedMember& member = space.members.emplace_back();
  member.planned.experiment.name = "member" + std::to_string(space.members.size() - 1);
  member.planned.experiment.shape = shape;
  TrainingConfig& config = member.planned.experiment.config;
  config.zero_stage = knobs.zero_stage;
  config.micro_batch = knobs.micro_batch;
  config.accumulation_steps = knobs.accumulation_steps;
  config.recompute = knobs.recompute;
  config.reduce_bucket_size = knobs.reduce_bucket_size;
  member.micro_batch_chain = chain;
  space.total = space.planned = space.members.size();
  return member;
}

/// Keeps the members for which it holds.
inline void keep_members(PlannedSpace& space,
                         const std::function<bool(const PlannedMember&)>& is_kept) {
  PackedList<PlannedMember> kept;
  for (const PlannedMember& member : space.members)
    if (is_kept(member)) kept.push_back(member);
  space.members = std::move(kept);
}
/// Keeps the first so many.
inline void keep_first_members(PlannedSpace& space, std::size_t count) {
  keep_members(space, [&](const PlannedMember&) { return count > 0 && count-- > 0; });
}

/// The largest of what members are worth.
inline double largest(const PlannedSpace& space, const std::function<double(std::size_t)>& worth) {
  double most = worth(0);
  for (std::size_t member = 1; member < space.members.size(); ++member)
    most = std::max(most, worth(member));
  return most;
}

inline bool are_distinct(const std::vector<std::size_t>& members) {
  return std::set<std::size_t>(members.begin(), members.end()).size() == members.size();
}

/// Runs a search to its end, `slots` at a time; `measure` says how each ends. Returns what ran, in
/// order.
template <class Search, class Measure>
std::vector<std::size_t> run_search(Search& search, const Measure& measure, std::size_t slots = 1) {
  std::vector<std::size_t> order, running;
  for (;;) {
    while (running.size() < slots) {
      const auto next = search.next();
      if (!next) break;
      running.push_back(*next);
      order.push_back(*next);
    }
    if (order.size() > 10'000) {
      ADD_FAILURE() << "it asks for ever";
      return order;
    }
    if (running.empty()) break;
    const std::size_t ended = running.front();
    running.erase(running.begin());
    search.observe(ended, measure(ended));
  }
  EXPECT_TRUE(search.is_done());
  return order;
}

/// A member that was skipped for a reason with these words.
MATCHER_P(SkippedFor, reason, "") {
  return testing::ExplainMatchResult(testing::HasSubstr(reason), arg.reason, result_listener);
}

using Measure = std::function<Observation(std::size_t)>;

/// A space, and a search in it that was run to its end.
class SpaceTest : public testing::Test {
 protected:
  /// Leaves the tuner and what ran.
  void search(const std::string& type, const Measure& measure, const TuningOptions& options = {},
              std::size_t slots = 1) {
    tuner_ = make_tuner(type, space_, options);
    ended_.clear();
    const auto measured = [&](std::size_t member) {
      return ended_.emplace_back(member, measure(member)).second;
    };
    ran_ = run_search(*tuner_, measured, slots);
    EXPECT_TRUE(are_distinct(ran_));
  }
  [[nodiscard]] const TrainingConfig& config(std::size_t member) const {
    return space_.experiment(member).config;
  }
  static TuningOptions seeded(std::int64_t seed) {
    TuningOptions options;
    options.seed = seed;
    return options;
  }
  /// The largest value of those that ran to their end.
  [[nodiscard]] double best() const {
    double most = 0;
    for (const auto& [member, observation] : ended_)
      most = std::max(most, observation.result().value_or(0));
    return most;
  }
  [[nodiscard]] long num_ended(Status status) const {
    return std::ranges::count_if(ended_,
                                 [&](const auto& each) { return each.second.status == status; });
  }
  /// A new search that is told so many of what ended here.
  [[nodiscard]] std::unique_ptr<Tuner> resumed(const std::string& type, std::size_t known) const {
    auto tuner = make_tuner(type, space_, {});
    for (std::size_t place = 0; place < known; ++place)
      tuner->observe(ended_[place].first, ended_[place].second);
    return tuner;
  }

  PlannedSpace space_;
  std::unique_ptr<Tuner> tuner_;
  std::vector<std::size_t> ran_;
  std::vector<std::pair<std::size_t, Observation>> ended_;  ///< in the order of their ends
};

/// From 1 on.
inline std::vector<std::int64_t> sizes_to(std::int64_t largest) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(largest));
  std::iota(sizes.begin(), sizes.end(), 1);
  return sizes;
}

/// Libraries that need no scratch.
class NoWorkspaces : public WorkspaceSizes {
 public:
  std::int64_t matmul(const op::Matmul&, DType, DType) const override { return 0; }
  std::int64_t norm(std::int64_t) const override { return 0; }
  std::int64_t attention(std::int64_t, std::int64_t, const ModelSpec&, DType) const override {
    return 0;
  }
};

inline constexpr std::int64_t plenty_bytes = std::int64_t{1} << 50;

class SearchTest : public test::FolderTest {
 protected:
  /// A job with a tiny model; `dstune` and `rest` are members of the section and of the document.
  JobSpec job(const std::string& rest, const std::string& dstune = "") {
    const std::string model = R"({"family": "gpt2", "hidden_size": 64, "num_layers": 2,
        "num_heads": 2, "vocab_size": 512, "max_positions": 128})";
    const auto path = write("space.json", "{\"dstune\": {\"model\": " + model + ", " + dstune +
                                              (dstune.empty() ? "" : ", ") +
                                              "\"sequence_length\": 32}, " + rest + "}");
    Overrides overrides = overrides_;
    overrides.deepspeed_version = Version{0, 19, 6};
    return read_job(path, overrides, machine_, 1);
  }

  PlannedSpace plan(const JobSpec& read, std::int64_t device_memory_bytes = plenty_bytes,
                    std::int64_t host_memory_bytes = plenty_bytes,
                    const Forecasts& forecasts = {}) {
    PlannerOptions options;
    options.forecasts = forecasts;
    options.device_memory_bytes = device_memory_bytes;
    options.host_memory_bytes = host_memory_bytes;
    return plan_space(read, SearchSpace(read), workspaces_, options);
  }

  Overrides overrides_;
  std::optional<Machine> machine_;
  NoWorkspaces workspaces_;
};

}  // namespace dstune
