/// The kernels against the catalogue of operations: each is run alone, by its operation, and reads
/// and writes what the catalogue says.

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/device/device.hpp"
#include "executor/dispatch.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

/// Rank 0 of ranks that all have the same numbers.
class AlikeRanks : public ProcessGroup {
 public:
  explicit AlikeRanks(int size)
      : ProcessGroup(0, std::vector<int>(static_cast<std::size_t>(size))) {}

  void all_reduce(void*, std::int64_t, DType, Reduction, const RankRange&) override {}
  void reduce_average(void*, std::int64_t, DType, int) override {}
  void reduce_scatter_average(void* out, const void* in, std::int64_t count, DType type,
                              const RankRange&) override {
    std::memmove(out, in, static_cast<std::size_t>(count * size_bytes(type)));
  }
  void all_gather(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override {
    const auto bytes = static_cast<std::size_t>(count * size_bytes(type));
    const std::vector<std::byte> own(static_cast<const std::byte*>(in),
                                     static_cast<const std::byte*>(in) + bytes);
    for (int rank = 0; rank < among.size(size()); ++rank)
      std::memcpy(static_cast<std::byte*>(out) + static_cast<std::size_t>(rank) * bytes, own.data(),
                  bytes);
  }
  void all_to_all(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override {
    std::memcpy(out, in, static_cast<std::size_t>(among.size(size()) * count * size_bytes(type)));
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    for (std::size_t place = 0; place < all.size(); ++place) all[place] = mine[place % mine.size()];
  }
};

class OperationAccessTest : public testing::Test {
 protected:
  using Bytes = std::vector<std::byte>;
  using Memories = std::array<Bytes, 2>;  // the device's and the host's
  struct Range {
    std::size_t memory, begin, bytes;
  };

  /// One step of the plan.
  void run(const ModelSpec& model, const TrainingConfig& config, int group_size) {
    CpuDevice device(std::int64_t{1} << 28, 1);
    const StepPlan plan =
        build_step_plan(model, config, group_size, 0, CpuWorkspaces(device.kernels()));
    device.queues().prepare(train::Dispatch::numbers(plan), Waiter());
    train::PlannedMemory memory(plan, device, Guard::none);
    AlikeRanks group(group_size);
    train::Dispatch dispatch(plan, device, memory, nullptr, group, 7);
    plan_ = &plan;
    memory_ = &memory;
    dispatch_ = &dispatch;
    bases_ = {device.arena().base(), device.host_arena().base()};
    dispatch.begin_training();
    check(plan.initialize);
    dispatch.begin_step(0);
    std::int64_t micro_step = 0;
    for (const Segment& segment : plan.cycle) {
      if (train::is_micro_step(segment.kind)) dispatch.begin_micro_step(micro_step++);
      check(segment.steps);
    }
    dispatch.end_step();
  }

  std::set<std::string_view> seen_;

 private:
  void check(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (kind_of(step.operation) == OperationKind::order) {
        dispatch_->run({step});
      } else if (!testing::Test::HasFailure()) {
        check(step);
      }
    }
  }

  void check(const Step& step) {
    const std::string_view name = traits_of(step.operation).name;
    seen_.insert(name);
    const std::vector<Access> all = accesses(*plan_, step.operation);
    const Memories before = memories();
    dispatch_->run({step});
    const Memories after = memories();
    Memories expected = before;
    for (const Access& access : all)
      if (access.writes()) copy(after, expected, range_of(access));
    EXPECT_TRUE(expected == after) << name << " writes beyond what the catalogue says";
    if (kind_of(step.operation) == OperationKind::exchange) return;

    // What it does not read is no number.
    Memories poisoned;
    for (std::size_t side = 0; side < poisoned.size(); ++side)
      poisoned[side].assign(before[side].size(), std::byte{0xFF});
    for (const Access& access : all)
      if (access.reads()) copy(before, poisoned, range_of(access));
    restore(poisoned);
    dispatch_->run({step});
    const Memories again = memories();
    for (const Access& access : all) {
      if (!access.writes() || tensor(access).category == Category::workspace) continue;
      const Range range = range_of(access);
      EXPECT_EQ(std::memcmp(again[range.memory].data() + range.begin,
                            after[range.memory].data() + range.begin, range.bytes),
                0)
          << name << " reads more than the catalogue says, or writes less, of "
          << tensor(access).name;
    }
    restore(after);
  }

  [[nodiscard]] const PlannedTensor& tensor(const Access& access) const {
    return plan_->tensors[static_cast<std::size_t>(access.view.tensor)];
  }
  [[nodiscard]] Range range_of(const Access& access) const {
    const PlannedTensor& touched = tensor(access);
    const auto side = static_cast<std::size_t>(touched.memory);
    const auto begin = static_cast<std::size_t>(memory_->address(access.view) - bases_[side]);
    // Scratch is all of its tensor.
    const std::int64_t bytes = touched.category == Category::workspace
                                   ? touched.padded_bytes
                                   : access.elements * size_bytes(touched.dtype);
    return {side, begin, static_cast<std::size_t>(bytes)};
  }
  static void copy(const Memories& from, Memories& to, const Range& range) {
    std::memcpy(to[range.memory].data() + range.begin, from[range.memory].data() + range.begin,
                range.bytes);
  }
  [[nodiscard]] Memories memories() const {
    const std::array sizes{plan_->memory.arena_bytes, plan_->host_memory.arena_bytes};
    Memories copied;
    for (std::size_t side = 0; side < sizes.size(); ++side)
      copied[side].assign(bases_[side], bases_[side] + sizes[side]);
    return copied;
  }
  void restore(const Memories& memories) {
    for (std::size_t side = 0; side < memories.size(); ++side)
      std::ranges::copy(memories[side], bases_[side]);
  }

  const StepPlan* plan_ = nullptr;
  const train::PlannedMemory* memory_ = nullptr;
  train::Dispatch* dispatch_ = nullptr;
  std::array<std::byte*, 2> bases_{};
};

TEST_F(OperationAccessTest, EveryKernelReadsAndWritesWhatTheCatalogueSays) {
  for (const ModelFamily family :
       {ModelFamily::gpt2, ModelFamily::llama, ModelFamily::gpt_neox, ModelFamily::qwen3,
        ModelFamily::bert, ModelFamily::olmo2, ModelFamily::granite, ModelFamily::gemma3_text,
        ModelFamily::falcon}) {
    TrainingConfig config = test::tiny_config(0);
    config.accumulation_steps = 3;
    ModelSpec model = test::tiny_model(family);
    if (family == ModelFamily::granite) model.architecture.residual_multiplier = 0.5;
    run(model, config, 1);
  }
  for (const int stage : {0, 1, 2, 3}) {
    TrainingConfig config = test::tiny_config(stage);
    config.accumulation_steps = 2;
    config.precision = Precision::fp16;
    config.loss_scale.fixed = 1;
    config.gradient_clipping = 1;
    config.recompute = stage % 2 == 0 ? Recompute::block : Recompute::selective;
    if (stage == 2) config.offload_optimizer = OffloadDevice::cpu;
    run(test::tiny_gpt2(), config, 2);
    if (stage < 3) continue;
    config.zero_quantized_weights = config.zero_quantized_gradients = true;
    config.ranks_per_node = 2;
    run(test::even_gpt2(4), config, 4);
  }
  std::string missing;
  for (const OperationTraits& traits : operation_traits) {
    const bool is_tried =
        traits.kind == OperationKind::arithmetic || traits.kind == OperationKind::copy;
    if (is_tried && !seen_.contains(traits.name)) missing += std::string(traits.name) + " ";
  }
  EXPECT_EQ(missing, "");
}

}  // namespace
}  // namespace dstune
