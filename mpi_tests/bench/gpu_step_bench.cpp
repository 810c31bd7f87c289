// One training step on a GPU, or on a processor to try the program: time, tokens/s, the share of a
// peak, memory against the plan, and where the time goes.
//   mpirun -np 1 gpu_step_bench --model gpt2 --micro-batch 32 --tokens 1024 --peak-tflops 989
// A GPU for each rank. scripts/compare_pytorch.py takes the same arguments for the same step in
// PyTorch. Code 77 where no GPU answers; the last line begins with "result: ".
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/predict/work.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/train/tracing.hpp"

namespace dstune {
namespace {

constexpr int skipped = 77;
constexpr double gib = 1 << 30;
/// Libraries choose their algorithms, stage 3 traces the model, micro-steps are recorded.
constexpr int warmup_steps = 4;

using Arguments = std::map<std::string, std::string>;

/// What is not given is as here.
const Arguments defaults{{"backend", "cuda"},    {"model", "gpt2"},    {"precision", "bf16"},
                         {"micro-batch", "1"},   {"tokens", "1024"},   {"accumulation", "1"},
                         {"recompute", "none"},  {"stage", "0"},       {"offload", "none"},
                         {"steps", "20"},        {"peak-tflops", "0"}, {"threads", "1"},
                         {"trace-seconds", "10"}};

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments = defaults;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(0, 2) == "--" ? argv[i] + 2 : argv[i];
    if (i + 1 == argc || !arguments.contains(name)) {
      std::string known;
      for (const auto& [key, value] : defaults) known += " [--" + key + " " + value + "]";
      throw UsageError("usage: gpu_step_bench" + known);
    }
    arguments[name] = argv[i + 1];
  }
  return arguments;
}

template <class Value, std::size_t count>
Value chosen(const Arguments& arguments, const std::string& name,
             const std::array<Value, count>& values) {
  for (const Value value : values)
    if (arguments.at(name) == to_text(value)) return value;
  throw UsageError("--" + name + " " + arguments.at(name) + " is none of those there are");
}

/// A preset's name, or a Hugging Face config.json.
ModelSpec model_of(const std::string& name) {
  const bool is_file = name.ends_with(".json");
  return is_file ? import_huggingface(json::Document::read(name)) : preset(name);
}

TrainingConfig config_of(const Arguments& arguments) {
  TrainingConfig config;
  config.zero_stage = std::stoi(arguments.at("stage"));
  config.micro_batch = std::stoll(arguments.at("micro-batch"));
  config.accumulation_steps = std::stoll(arguments.at("accumulation"));
  config.sequence_length = std::stoll(arguments.at("tokens"));
  config.precision =
      chosen(arguments, "precision", std::array{Precision::bf16, Precision::fp16, Precision::fp32});
  config.recompute = chosen(arguments, "recompute",
                            std::array{Recompute::none, Recompute::selective, Recompute::block});
  config.offload_optimizer =
      chosen(arguments, "offload", std::array{OffloadDevice::none, OffloadDevice::cpu});
  return config;
}

/// A rank's device with the groups on it.
struct Bench {
  Communicator world = Communicator::world();
  Communicator node = world.split_shared();
  Topology topology = find_topology(world, node);
  CudaGpu gpu;
  std::unique_ptr<Device> device;
  std::unique_ptr<GroupTable> table;
  std::unique_ptr<ProcessGroup> group;

  explicit Bench(const Arguments& arguments) {
    const int threads = std::stoi(arguments.at("threads"));
    const bool on_gpu = arguments.at("backend") == "cuda";
    GroupTable::Options options;
    if (on_gpu) {
      constexpr std::int64_t staging_bytes = std::int64_t{16} << 20;
      device = make_cuda_device(node.rank(), host_memory_bytes(), threads, &gpu);
      device->staging_arena().prepare(staging_bytes);
      options.device = DeviceGroupOptions{
          .queues = &device->queues(),
          .staging = {device->staging_arena().base(), static_cast<std::size_t>(staging_bytes)},
          .device_id = gpu.uuid,
          .nccl = nccl::find_library(),
          .free_bytes = free_cuda_bytes,
          .begin_thread = [own = device.get()] { own->begin_thread(); }};
    } else {
      device = std::make_unique<CpuDevice>(host_memory_bytes(), threads);
    }
    std::vector<int> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    table = std::make_unique<GroupTable>(world, node, topology,
                                         std::vector<std::vector<int>>{everyone}, options);
    group = table->join(everyone, 1,
                        Waiter(Waiter::Clock::time_point::max(), nullptr, topology.share_core));
  }
};

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

/// By kind of operation, from steps in which each operation is waited for: their sum is more than a
/// step takes whose operations follow each other without a wait, or overlap.
void print_kinds(const StepPlan& plan, const TracedSteps& traced) {
  struct Sum {
    double seconds = 0, amount = 0;
    std::int64_t operations = 0;
  };
  std::array<Sum, num_work_kinds> sums{};
  double all_s = 0;
  for (const StepTrace& trace : traced.traces) {
    for (const TracedOperation& traced_one : trace) {
      const std::optional<Work> work = traced_one.operation == nullptr
                                           ? work_of_tokens(plan)
                                           : work_of(plan, *traced_one.operation);
      if (!work) continue;
      Sum& sum = sums[static_cast<std::size_t>(work->kind)];
      sum.seconds += traced_one.seconds;
      sum.amount += amount(*work);
      ++sum.operations;
      all_s += traced_one.seconds;
    }
  }
  const auto steps = static_cast<double>(traced.traces.size());
  std::array<std::size_t, num_work_kinds> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](auto a, auto b) { return sums[a].seconds > sums[b].seconds; });
  std::printf("%-20s %7s %12s %7s %12s\n", "operation", "count", "ms a step", "share",
              "G a second");
  for (const std::size_t kind : order) {
    const Sum& sum = sums[kind];
    if (sum.operations == 0) continue;
    std::printf("%-20s %7.0f %12.3f %6.1f%% %12.1f\n",
                std::string(to_text(static_cast<WorkKind>(kind))).c_str(),
                static_cast<double>(sum.operations) / steps, 1e3 * sum.seconds / steps,
                100 * sum.seconds / all_s, sum.amount / sum.seconds / 1e9);
  }
  std::printf(
      "Operations one by one: %.3f ms a step, with a wait for each. G a second: FLOP of matmul and "
      "attention, else bytes.\n",
      1e3 * all_s / steps);
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

int run(const Arguments& arguments) {
  Bench bench(arguments);
  ProcessGroup& group = *bench.group;
  Device& device = *bench.device;
  const bool is_first = group.group_rank() == 0;
  const ModelSpec model = model_of(arguments.at("model"));
  const TrainingConfig config = config_of(arguments);
  const StepPlan plan = build_step_plan(model, config, group.size(), group.group_rank(),
                                        CpuWorkspaces(device.kernels()));
  if (is_first) {
    std::printf(
        "%s, %lld parameters, %s: %lld x %lld tokens a micro-step and rank, %lld of them, "
        "recompute %s, stage %d, optimizer offloaded to %s, %d ranks on %s\n",
        model.name.c_str(), static_cast<long long>(parameter_count(model)),
        std::string(to_text(config.precision)).c_str(), static_cast<long long>(config.micro_batch),
        static_cast<long long>(config.sequence_length),
        static_cast<long long>(config.accumulation_steps),
        std::string(to_text(config.recompute)).c_str(), config.zero_stage,
        std::string(to_text(config.offload_optimizer)).c_str(), group.size(),
        device.description().c_str());
    std::printf("plan: %.3f GiB of the device, of %.3f GiB it may use\n",
                static_cast<double>(plan.memory.arena_bytes) / gib,
                static_cast<double>(device.budget().limit_bytes()) / gib);
    if (const DeviceGroups* const devices = bench.table->devices()) {
      std::vector<int> everyone(static_cast<std::size_t>(group.size()));
      std::iota(everyone.begin(), everyone.end(), 0);
      std::printf("collectives: %s\n", devices->way_of(everyone).text.c_str());
    }
    std::fflush(stdout);
  }
  Timing timing;
  std::int64_t taken_bytes = 0;
  {
    Executor executor(plan, device, group, 0);
    timing = time_steps(executor, group, std::stoi(arguments.at("steps")));
    taken_bytes = bench.gpu.free_bytes - free_cuda_bytes();
    if (is_first) print_memory(plan, device, taken_bytes);
  }
  const auto tokens =
      static_cast<double>(global_batch(config, group.size()) * config.sequence_length);
  const double step_s = median(timing.steps_s);
  const double tflops = flops_per_token(model, config.sequence_length) * tokens / step_s / 1e12 /
                        static_cast<double>(group.size());
  if (is_first) {
    std::printf(
        "step: median %.3f ms of %zu (5 %% below %.3f, 95 %% below %.3f); forward %.3f, backward "
        "%.3f, update %.3f\nlosses: %.4f in the first step, %.4f in the last\n",
        1e3 * step_s, timing.steps_s.size(), 1e3 * quantile(timing.steps_s, 0.05),
        1e3 * quantile(timing.steps_s, 0.95), 1e3 * median(timing.phases_s[0]),
        1e3 * median(timing.phases_s[1]), 1e3 * median(timing.phases_s[2]), timing.first_loss,
        timing.last_loss);
    std::fflush(stdout);
  }
  if (const double budget_s = std::stod(arguments.at("trace-seconds")); budget_s > 0) {
    const std::optional<TracedSteps> traced =
        trace_steps(plan, device, group, 0, budget_s, Waiter());
    if (is_first && traced) print_kinds(plan, *traced);
  }
  if (is_first) {
    const double peak = std::stod(arguments.at("peak-tflops"));
    std::printf("result: %.0f tokens/s, %.3f TFLOP/s", tokens / step_s, tflops);
    if (peak > 0) std::printf(", %.1f %% of %g", 100 * tflops / peak, peak);
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
