/// The collectives of a step that run are those of the plan, one by one.

#include <ostream>
#include <string>
#include <string_view>

#include "golden.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;

struct Call {
  std::string_view name;  ///< the operation's
  std::int64_t count;     ///< as the operation and the group's method have it
  DType type;
  RankRange among = {};
  int root = -1;
  bool operator==(const Call&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Call& call) {
    return out << call.name << ", " << call.count << " elements of " << size_bytes(call.type)
               << " bytes, root " << call.root << ", " << call.among.count << " ranks from "
               << call.among.first << " on";
  }
};

/// Writes down what it hands on to a real group.
class RecordingGroup : public ProcessGroup {
 public:
  explicit RecordingGroup(ProcessGroup& group)
      : ProcessGroup(group.group_rank(), group.world_ranks()), group_(group) {}

  void all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                  const RankRange& among) override {
    const char* const name = op == Reduction::sum ? "all_reduce_sum" : "all_reduce";
    calls.push_back({name, count, type, among});
    group_.all_reduce(data, count, type, op, among);
  }
  void reduce_average(void* data, std::int64_t count, DType type, int root) override {
    calls.push_back({"reduce", count, type, {}, root});
    group_.reduce_average(data, count, type, root);
  }
  void reduce_scatter_average(void* out, const void* in, std::int64_t count, DType type,
                              const RankRange& among) override {
    calls.push_back({"reduce_scatter", count, type, among});
    group_.reduce_scatter_average(out, in, count, type, among);
  }
  void all_gather(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override {
    calls.push_back({"all_gather", count, type, among});
    group_.all_gather(out, in, count, type, among);
  }
  void all_to_all(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override {
    calls.push_back({"all_to_all", count, type, among});
    group_.all_to_all(out, in, count, type, among);
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    group_.exchange_into(mine, all);
  }

  std::vector<Call> calls;

 private:
  ProcessGroup& group_;
};

void add_calls(const StepPlan& plan, const std::vector<Step>& steps, std::vector<Call>& calls) {
  for (const Step& step : steps) {
    const auto collective = collective_of(step.operation, plan.group_size);
    if (!collective) continue;
    const auto tensor = static_cast<std::size_t>(collective->data.tensor);
    calls.push_back({traits_of(step.operation).name, collective->count, plan.tensors[tensor].dtype,
                     collective->among, collective->root});
  }
}

/// Calls of the first step of all, or of a later one.
std::vector<Call> planned_calls(const StepPlan& plan, bool is_first) {
  std::vector<Call> calls;
  std::size_t tracing = is_first ? 0 : plan.tracing.size();
  for (const Segment& segment : plan.cycle) {
    for (std::int64_t i = 0; i < segment.repeat; ++i) {
      const bool traced = tracing < plan.tracing.size();
      add_calls(plan, traced ? plan.tracing[tracing++].steps : segment.steps, calls);
    }
  }
  return calls;
}

class TrafficTest : public test::TrainingTest {
 protected:
  /// Several knobs from zero_optimization away from their defaults.
  static std::vector<TrainingConfig> configs(const Golden& golden) {
    std::vector<TrainingConfig> result;
    for (const int stage : {0, 1, 2, 3}) {
      TrainingConfig config = golden.on(job().size(), stage, 3);
      config.reduce_bucket_size = 5'000;
      result.push_back(config);
      config.overlap_comm = true;
      config.communication_data_type = CommunicationType::bf16;
      result.push_back(config);
      config.use_multi_rank_bucket_allreduce = false;
      config.round_robin_gradients = true;
      config.stage3_use_all_reduce_for_fetch_params = true;
      result.push_back(config);
      config.reduce_scatter = false;
      config.recompute = Recompute::block;
      result.push_back(config);
      config.offload_optimizer = OffloadDevice::cpu;
      result.push_back(config);
    }
    for (int size = 2; size <= job().size(); ++size) {
      if (job().size() % size != 0) continue;
      TrainingConfig config = golden.on(job().size(), 3, 3);
      config.stage3_max_reuse_distance = 0;
      config.zero_hpz_partition_size = size;
      result.push_back(config);
      config.zero_hpz_partition_size = 1;
      config.mics_shard_size = size;
      result.push_back(config);
      config.mics_hierarchical_params_gather = true;
      config.ranks_per_node = 1;
      result.push_back(config);
    }
    for (int of_node = 1; of_node < job().size(); ++of_node) {
      if (job().size() % of_node != 0) continue;
      TrainingConfig config = golden.on(job().size(), 3, 3);
      config.stage3_max_reuse_distance = 0;
      config.zero_quantized_weights = config.zero_quantized_gradients = true;
      config.ranks_per_node = of_node;
      config.communication_data_type = CommunicationType::fp16;
      result.push_back(config);
      config.zero_hpz_partition_size = job().size() / of_node;
      result.push_back(config);
    }
    return result;
  }
};

TEST_F(TrafficTest, TheCollectivesThatRunAreThePlans) {
  Golden golden("llama");
  golden.model.vocab_size = 264;  // 2 and 4 ranks divide it
  for (const TrainingConfig& config : configs(golden)) {
    if (!model_violation(golden.model, config, job().size()).empty()) continue;
    const std::unique_ptr<ProcessGroup> group = job().join();
    RecordingGroup recording(*group);
    CpuDevice device(256 << 20, 1);
    const StepPlan plan = plan_of(golden.model, config, device.kernels());
    device.arena().prepare(plan.memory.arena_bytes);
    device.host_arena().prepare(plan.host_memory.arena_bytes);
    Executor executor(plan, device, recording, golden.seed);
    executor.initialize();
    EXPECT_EQ(recording.calls, std::vector<Call>());
    for (int step = 0; step < 3; ++step) {
      recording.calls.clear();
      executor.step(step);
      EXPECT_EQ(recording.calls, planned_calls(plan, step == 0))
          << "stage " << config.zero_stage << ", step " << step;
    }
  }
}

TEST_F(TrafficTest, SumsAreAsManyTimesTheMeanAsThereAreRanks) {
  const Golden golden("gpt2");
  const auto norm = [&](int stage, bool sums) {
    TrainingConfig config = golden.on(job().size(), stage, 2);
    config.sums_gradients = sums;
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice device(256 << 20, 1);
    const StepPlan plan = plan_of(golden.model, config, device.kernels());
    device.arena().prepare(plan.memory.arena_bytes);
    Executor executor(plan, device, *group, golden.seed);
    executor.initialize();
    return executor.step(0).gradient_norm;
  };
  for (const int stage : {0, 1, 2})
    EXPECT_NEAR(norm(stage, true) / norm(stage, false), job().size(), 1e-5) << "stage " << stage;
  EXPECT_EQ(norm(3, true), norm(3, false));
}

}  // namespace
}  // namespace dstune
