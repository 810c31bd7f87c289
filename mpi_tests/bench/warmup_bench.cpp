// How far means of timed steps are off where runs warm up by need, against runs that three steps at
// least warm up as they were before, in turns (A B B A …), each built anew:
//   mpirun -np 2 --bind-to none warmup_bench warm small elapsed 200
//   mpirun -np 2 --bind-to none warmup_bench new large own 40
// (warm: all operations have run before; new: each pair has another sequence length, so that the
// first of its runs compiles its code and warms up until it settles; model; clock; pairs. The clock
// own is the processor's time of a step: on a busy machine others are not in it.)
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dstune/comm/environment.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/model/parameter_table.hpp"

namespace dstune {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

ModelSpec model_of(const std::string& name) {
  const bool is_large = name == "large";
  ModelSpec model;
  model.hidden_size = is_large ? 256 : 128;
  model.num_layers = 4;
  model.num_heads = model.num_kv_heads = 4;
  model.head_size = model.hidden_size / 4;
  model.intermediate_size = 4 * model.hidden_size;
  model.vocab_size = 1024;
  model.max_positions = 4096;
  return model;
}

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Another workload, whose steps take the processor's time.
class OnOwnClock : public Workload {
 public:
  explicit OnOwnClock(std::unique_ptr<Workload> workload) : workload_(std::move(workload)) {}

  [[nodiscard]] WorkloadTraits traits() const override { return workload_->traits(); }
  void build() override { workload_->build(); }
  void initialize() override { workload_->initialize(); }
  StepSample step(std::int64_t step) override {
    const double began_s = processor_s();
    StepSample sample = workload_->step(step);
    sample.step_s = processor_s() - began_s;
    return sample;
  }
  [[nodiscard]] WarmupNeed warmup_need() const override { return workload_->warmup_need(); }
  void note_warm_after(int steps) override { workload_->note_warm_after(steps); }
  [[nodiscard]] PeakMemory peak_memory() const override { return workload_->peak_memory(); }
  [[nodiscard]] double flops_per_step() const override { return workload_->flops_per_step(); }

 private:
  std::unique_ptr<Workload> workload_;
};

/// Runs of one configuration after another on all ranks.
class Runs {
 public:
  Runs(const std::string& model, bool is_on_own_clock)
      : is_on_own_clock_(is_on_own_clock),
        model_(model_of(model)),
        everyone_(static_cast<std::size_t>(world_.size())) {
    std::iota(everyone_.begin(), everyone_.end(), 0);
    table_ = std::make_unique<GroupTable>(
        world_, node_, topology_, std::vector<std::vector<int>>{everyone_}, GroupTable::Options{});
    config.zero_stage = 1;
    config.micro_batch = model == "large" ? 4 : 2;
    config.sequence_length = 64;
  }

  Measurement run(bool asks_for_three) {
    // As few timed steps as there ever are: unsettled ones count most.
    const MeasureOptions options{.trial_budget_s = 1e-3, .asks_for_warmup = asks_for_three};
    const Waiter waiter(Waiter::Clock::time_point::max(), nullptr, topology_.share_core);
    const auto group = table_->join(everyone_, ++attempt_, waiter);
    const std::string name = "warmup_bench";
    RunContext context;
    context.model = &model_;
    context.config = &config;
    context.experiment_name = &name;
    context.seed = 0;
    context.device = &device_;
    context.group = group.get();
    context.waiter = &waiter;
    std::unique_ptr<Workload> workload = instrument_->make(context);
    if (is_on_own_clock_) workload = std::make_unique<OnOwnClock>(std::move(workload));
    return measure(*workload, *group, options, {});
  }

  [[nodiscard]] bool is_leader() const { return world_.rank() == 0; }

  TrainingConfig config;

 private:
  bool is_on_own_clock_;
  Communicator world_ = Communicator::world();
  Communicator node_ = world_.split_shared();
  Topology topology_ = find_topology(world_, node_);
  ModelSpec model_;
  std::vector<int> everyone_;
  std::unique_ptr<GroupTable> table_;
  CpuDevice device_{host_memory_bytes(), 1};
  std::unique_ptr<Instrument> instrument_ = make_instrument({});
  std::uint64_t attempt_ = 0;
};

int compare(bool is_new, const std::string& model, bool is_on_own_clock, int pairs) {
  Runs runs(model, is_on_own_clock);
  runs.run(true);
  std::vector<double> ratios, step_ratios;
  double warmup_by_need = 0, warmup_by_three = 0;
  for (int pair = 0; pair < pairs; ++pair) {
    if (is_new) runs.config.sequence_length += 8;
    const bool need_is_first = is_new || pair % 2 == 0;
    const Measurement first = runs.run(!need_is_first), second = runs.run(need_is_first);
    const Measurement& by_need = need_is_first ? first : second;
    const Measurement& by_three = need_is_first ? second : first;
    if (by_need.status != Status::ok || by_three.status != Status::ok) {
      std::fprintf(stderr, "%s%s\n", by_need.reason.c_str(), by_three.reason.c_str());
      return 1;
    }
    ratios.push_back(std::log(mean(timed_steps_s(by_need)) / mean(timed_steps_s(by_three))));
    // The same steps of one run, by both ways: its own noise is in both.
    const std::vector<double>& steps_s = by_three.step_times_s;
    const auto of = [&](int from) {
      return mean({steps_s.begin() + from, steps_s.begin() + from + 5});
    };
    step_ratios.push_back(std::log(of(1) / of(3)));
    warmup_by_need += by_need.warmup_steps;
    warmup_by_three += by_three.warmup_steps;
  }
  if (!runs.is_leader()) return 0;
  const double count = pairs;
  const auto print = [&](const char* what, const std::vector<double>& values) {
    std::vector<double> distances;
    const double middle = median(values);
    for (const double value : values) distances.push_back(std::abs(value - middle));
    // The standard error of a median of normal noise.
    std::printf("%s: median %+.2f %%, give or take %.2f %%\n", what, 100 * middle,
                100 * 1.2533 * 1.4826 * median(distances) / std::sqrt(count));
  };
  std::printf("%d pairs of runs of 5 timed steps, %s; warm-up steps %.2f by need, %.2f by three\n",
              pairs, is_new ? "new operations" : "warm operations", warmup_by_need / count,
              warmup_by_three / count);
  print("mean by need over mean by three", ratios);
  if (!is_new) print("steps 1 to 5 over steps 3 to 7 of one run", step_ratios);
  return 0;
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: warmup_bench warm|new small|large elapsed|own PAIRS\n");
    return 2;
  }
  dstune::MpiEnvironment environment(argc, argv);
  return dstune::compare(argv[1] == std::string("new"), argv[2], argv[3] == std::string("own"),
                         std::max(1, std::atoi(argv[4])));
}
