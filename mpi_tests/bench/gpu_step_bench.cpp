// One training step on a GPU, or on a processor to try the program: time, tokens/s, the share of a
// peak, memory against the plan, and where the time goes beside the least that the peaks allow.
//   mpirun -np 1 gpu_step_bench --model gpt2 --micro-batch 32 --tokens 1024 --peak-tflops 989
//       --peak-tbs 4.8
// A GPU for each rank. `--backend none` needs no device: what a step reads, writes and computes,
// and the least time it can take. scripts/tools/compare_pytorch.py takes the same arguments but the
// peak of memory for the same step in PyTorch. Code 77 where no GPU answers; the last line of a
// step that was timed begins with "result: ".
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/train/executor.hpp"
#include "gpu_step_arguments.hpp"
#include "gpu_step_device.hpp"
#include "step_bounds.hpp"

namespace dstune {
namespace {

constexpr int skipped = 77;
constexpr double gib = 1 << 30;
/// Libraries choose their algorithms, stage 3 traces the model, micro-steps are recorded.
constexpr int warmup_steps = 4;

struct Timing {
  std::vector<double> steps_s;
  std::array<std::vector<double>, 3> phases_s;
  double first_loss = 0, last_loss = 0;
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

/// Steps by the wall's clock: an executor's step ends when all of its work is done.
Timing time_steps(Executor& executor, ProcessGroup& group, int count) {
  using Clock = std::chrono::steady_clock;
  Timing timing;
  executor.initialize();
  for (int step = 0; step < warmup_steps + count; ++step) {
    group.exchange(std::array{0.0});
    const Clock::time_point began = Clock::now();
    const StepOutcome outcome = executor.step(step);
    const double mine_s = std::chrono::duration<double>(Clock::now() - began).count();
    const std::vector<double> all_s = group.exchange(std::array{mine_s});
    if (step == 0) timing.first_loss = outcome.loss;
    timing.last_loss = outcome.loss;
    if (step < warmup_steps) continue;
    timing.steps_s.push_back(*std::max_element(all_s.begin(), all_s.end()));
    for (std::size_t phase = 0; phase < 3; ++phase)
      timing.phases_s[phase].push_back(outcome.phase_s[phase]);
  }
  return timing;
}

void print_memory(const StepPlan& plan, Device& device, std::int64_t taken_bytes) {
  const auto line = [](const char* name, const Arena& arena, const MemoryPlan& planned) {
    std::printf("%s: planned %.3f GiB, highest byte used %.3f GiB (difference %lld bytes)\n", name,
                static_cast<double>(planned.arena_bytes) / gib,
                static_cast<double>(arena.account().high_water_bytes) / gib,
                static_cast<long long>(arena.account().high_water_bytes - planned.arena_bytes));
  };
  line("arena of the device", device.arena(), plan.memory);
  if (plan.host_memory.arena_bytes > 0)
    line("arena of the host", device.host_arena(), plan.host_memory);
  if (!device.is_asynchronous()) return;
  std::printf("taken of the GPU's memory: %.3f GiB, so %.3f GiB beside the arena\n",
              static_cast<double>(taken_bytes) / gib,
              static_cast<double>(taken_bytes - plan.memory.arena_bytes) / gib);
}

void print_plan(const StepPlan& plan) {
  const TrainingConfig& config = plan.config;
  std::printf(
      "%s, %lld parameters, %s: %lld x %lld tokens a micro-step and rank, %lld of them, "
      "recompute %s, stage %d, optimizer offloaded to %s, %d ranks\n",
      plan.model.name.c_str(), static_cast<long long>(parameter_count(plan.model)),
      std::string(to_text(config.precision)).c_str(), static_cast<long long>(config.micro_batch),
      static_cast<long long>(config.sequence_length),
      static_cast<long long>(config.accumulation_steps),
      std::string(to_text(config.recompute)).c_str(), config.zero_stage,
      std::string(to_text(config.offload_optimizer)).c_str(), plan.group_size);
  std::printf("plan: %.3f GiB of the device\n", static_cast<double>(plan.memory.arena_bytes) / gib);
}

void print_device(const BenchDevice& bench) {
  std::printf("on %s, of which %.3f GiB may be used\n", bench.device->description().c_str(),
              static_cast<double>(bench.device->budget().limit_bytes()) / gib);
  if (const std::string way = bench.way_of_collectives(); !way.empty())
    std::printf("collectives: %s\n", way.c_str());
  std::fflush(stdout);
}

void print_timing(const Timing& timing) {
  std::printf(
      "step: median %.3f ms of %zu (5 %% below %.3f, 95 %% below %.3f); forward %.3f, backward "
      "%.3f, update %.3f\nlosses: %.4f in the first step, %.4f in the last\n",
      1e3 * median(timing.steps_s), timing.steps_s.size(), 1e3 * quantile(timing.steps_s, 0.05),
      1e3 * quantile(timing.steps_s, 0.95), 1e3 * median(timing.phases_s[0]),
      1e3 * median(timing.phases_s[1]), 1e3 * median(timing.phases_s[2]), timing.first_loss,
      timing.last_loss);
  std::fflush(stdout);
}

Peaks peaks_of(const Arguments& arguments) {
  return {std::stod(arguments.at("peak-tflops")), std::stod(arguments.at("peak-tbs")),
          std::stod(arguments.at("launch-us"))};
}

/// FLOP of a rank's step by 6N + 6LCT.
double step_flops(const StepPlan& plan) {
  return flops_per_token(plan.model, plan.config.sequence_length) *
         static_cast<double>(global_batch(plan.config, 1) * plan.config.sequence_length);
}

/// What there is to know without a device.
int run_without_device(const Arguments& arguments) {
  const StepPlan plan = build_step_plan(model_of(arguments), config_of(arguments), 1, 0,
                                        CpuWorkspaces(kernels::cpu_table()));
  const Peaks peaks = peaks_of(arguments);
  print_plan(plan);
  print_kinds(kinds_of_work(plan, peaks, {}), step_flops(plan), peaks);
  return 0;
}

int run(const Arguments& arguments) {
  if (arguments.at("backend") == "none") return run_without_device(arguments);
  BenchDevice bench(arguments);
  ProcessGroup& group = *bench.group;
  Device& device = *bench.device;
  const bool is_first = group.group_rank() == 0;
  const StepPlan plan = build_step_plan(model_of(arguments), config_of(arguments), group.size(),
                                        group.group_rank(), CpuWorkspaces(device.kernels()));
  if (is_first) {
    print_plan(plan);
    print_device(bench);
  }
  Timing timing;
  {
    Executor executor(plan, device, group, 0);
    timing = time_steps(executor, group, std::stoi(arguments.at("steps")));
    if (is_first) print_memory(plan, device, bench.taken_bytes());
  }
  if (is_first) print_timing(timing);
  const Peaks peaks = peaks_of(arguments);
  if (const double budget_s = std::stod(arguments.at("trace-seconds")); budget_s > 0) {
    const std::optional<TracedSteps> traced =
        trace_steps(plan, device, group, 0, budget_s, Waiter());
    if (is_first && traced)
      print_kinds(kinds_of_work(plan, peaks, traced->traces), step_flops(plan), peaks);
  }
  if (is_first) {
    const double step_s = median(timing.steps_s);
    const auto tokens =
        static_cast<double>(global_batch(plan.config, group.size()) * plan.config.sequence_length);
    const double tflops = step_flops(plan) / step_s / 1e12;
    std::printf("result: %.0f tokens/s, %.3f TFLOP/s", tokens / step_s, tflops);
    if (peaks.tflops > 0) std::printf(", %.1f %% of %g", 100 * tflops / peaks.tflops, peaks.tflops);
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  dstune::MpiEnvironment environment(argc, argv);
  try {
    return dstune::run(dstune::read_arguments(argc, argv));
  } catch (const dstune::UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const dstune::DeviceError& error) {
    std::printf("result: %s\n", error.what());
    return dstune::kernels::num_cuda_devices() == 0 ? dstune::skipped : 1;
  } catch (const dstune::OutOfMemory& error) {
    std::printf("result: out of memory: %s\n", error.what());
    return 1;
  } catch (const dstune::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
