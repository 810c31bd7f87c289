// The time of one optimizer step of a preset on all ranks of the job, stage 0, with its phases:
//   mpirun -np 1 --bind-to none step_bench gpt2 bf16 4 64 2 selective
// (model, precision, micro-batch, tokens, threads, recompute: none where it is not given)
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/comm/environment.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/train/executor.hpp"

namespace dstune {
namespace {

constexpr int warmup_steps = 3;
constexpr int timed_steps = 15;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const std::string& name, const TrainingConfig& config, int threads) {
  const Communicator world = Communicator::world();
  const Communicator node = world.split_shared();
  const Topology topology = find_topology(world, node);
  std::vector<int> everyone(static_cast<std::size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  GroupTable table(world, node, topology, {everyone}, {});
  const auto group = table.join(
      everyone, 1, Waiter(Waiter::Clock::time_point::max(), nullptr, topology.share_core));
  const ModelSpec model = preset(name);
  CpuDevice device(host_memory_bytes(), threads);
  const StepPlan plan = build_step_plan(model, config, group->size(), group->group_rank(),
                                        CpuWorkspaces(device.kernels()));
  Executor executor(plan, device, *group, 0);
  executor.initialize();
  std::vector<double> totals;
  std::array<std::vector<double>, 3> phases;
  for (int step = 0; step < warmup_steps + timed_steps; ++step) {
    const StepOutcome outcome = executor.step(step);
    if (step < warmup_steps) continue;
    totals.push_back(std::accumulate(outcome.phase_s.begin(), outcome.phase_s.end(), 0.0));
    for (std::size_t phase = 0; phase < 3; ++phase) phases[phase].push_back(outcome.phase_s[phase]);
  }
  if (group->group_rank() == 0) {
    const auto [least, most] = std::minmax_element(totals.begin(), totals.end());
    const double flops = flops_per_token(model, config.sequence_length) *
                         static_cast<double>(config.micro_batch * config.sequence_length);
    std::printf(
        "%s %s, %lld x %lld tokens a rank, recompute %s, %d ranks, %d threads, %s\n"
        "step %.3f s median (%.3f to %.3f of %d): forward %.3f, backward %.3f, update %.3f; "
        "%.0f GFLOP/s a rank; arena %.3f GiB\n",
        name.c_str(), std::string(to_text(config.precision)).c_str(),
        static_cast<long long>(config.micro_batch), static_cast<long long>(config.sequence_length),
        std::string(to_text(config.recompute)).c_str(), group->size(), threads,
        device.description().c_str(), median(totals), *least, *most, timed_steps, median(phases[0]),
        median(phases[1]), median(phases[2]), flops / median(totals) / 1e9,
        static_cast<double>(plan.memory.arena_bytes) / (1 << 30));
  }
  return 0;
}

Precision precision_of(std::string_view text) {
  for (const Precision precision : {Precision::bf16, Precision::fp16})
    if (text == to_text(precision)) return precision;
  return Precision::fp32;
}

Recompute recompute_of(std::string_view text) {
  for (const Recompute recompute : {Recompute::selective, Recompute::block})
    if (text == to_text(recompute)) return recompute;
  return Recompute::none;
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  if (argc < 6 || argc > 7) {
    std::fprintf(stderr,
                 "usage: step_bench PRESET fp32|bf16|fp16 MICRO_BATCH TOKENS THREADS "
                 "[none|selective|block]\n");
    return 2;
  }
  dstune::MpiEnvironment environment(argc, argv);
  dstune::TrainingConfig config;
  config.precision = dstune::precision_of(argv[2]);
  config.micro_batch = std::atol(argv[3]);
  config.sequence_length = std::atol(argv[4]);
  if (argc > 6) config.recompute = dstune::recompute_of(argv[6]);
  return dstune::run(argv[1], config, std::atoi(argv[5]));
}
