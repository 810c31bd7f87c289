// Finalists in turns, as a job measures them: a member against itself, and its steps in turns with
// itself and with another member against those of runs without turns. All of it takes place on the
// same ranks, in the same minutes:
//   mpirun -np 2 turns_bench 40 3 0.5
// (rounds, steps of a turn, seconds of timed steps of a run)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dstune/comm/environment.hpp"
#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/tune/worker.hpp"

namespace dstune {
namespace {

/// A GPT-2 whose steps take some tens of milliseconds on two cores.
ModelSpec model_of_bench() {
  ModelSpec model;
  model.hidden_size = 256;
  model.num_layers = 4;
  model.num_heads = model.num_kv_heads = 4;
  model.head_size = 64;
  model.intermediate_size = 1024;
  model.vocab_size = 8192;
  model.max_positions = 128;
  return model;
}

TrainingConfig config_of(int zero_stage, int micro_batch) {
  TrainingConfig config;
  config.zero_stage = zero_stage;
  config.micro_batch = micro_batch;
  config.sequence_length = 128;
  return config;
}

double mean_s(const Measurement& measurement) {
  const std::vector<double> steps = timed_steps_s(measurement);
  return std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
}

/// The median, and how far it may be off by its own spread (95 %).
void print_ratios(const char* what, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](double place) {
    const auto last = static_cast<double>(ratios.size() - 1);
    return 100 * (ratios[static_cast<std::size_t>(std::lround(std::clamp(place, 0.0, last)))] - 1);
  };
  const auto count = static_cast<double>(ratios.size());
  const double middle = (count - 1) / 2, half = 0.98 * std::sqrt(count);
  std::printf("%-58s %+.2f %% (95 %%: %+.2f to %+.2f; quartiles %+.2f, %+.2f; %zu pairs)\n", what,
              at(middle), at(middle - half), at(middle + half), at(count / 4), at(3 * count / 4),
              ratios.size());
}

class TurnsBench {
 public:
  TurnsBench(int rounds, int turn_steps, double slice_s)
      : rounds_(rounds), turn_steps_(turn_steps), slice_s_(slice_s) {}

  void run() {
    CpuDevice device(host_memory_bytes() / 8, 1);
    MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::worker);
    const Instruments instruments = make_instruments({WorkloadSpec{}});
    MeasureOptions measure;
    measure.trial_budget_s = slice_s_ * default_policy().measuring.slices_of_budget;
    Worker worker({.model = &model_,
                   .instruments = &instruments,
                   .measure = measure,
                   .topology = &topology_,
                   .groups = &groups_,
                   .device = &device,
                   .mailbox = &mailbox});
    std::thread controller;
    if (world_.rank() == 0) controller = std::thread([&] { control(); });
    worker.run();
    if (controller.joinable()) controller.join();
  }

 private:
  /// One attempt of these; returns what its leader says.
  message::Outcome attempt(MpiMailbox& mailbox, const std::vector<message::Finalist>& finalists) {
    message::Assign assign;
    assign.attempt = ++attempt_;
    assign.experiment = finalists.front().experiment;
    assign.config = finalists.front().config;
    assign.turn_steps = turn_steps_;
    assign.others.assign(finalists.begin() + 1, finalists.end());
    assign.stays_built = true;
    assign.world_ranks.resize(static_cast<std::size_t>(topology_.world_size));
    std::iota(assign.world_ranks.begin(), assign.world_ranks.end(), 0);
    assign.timeout_s = 600;
    const auto send = [&](const Message& message) {
      for (const int rank : assign.world_ranks) mailbox.send(rank, encode(message));
    };
    send(assign);
    for (std::size_t ready = 0;;) {
      const auto received = mailbox.try_receive();
      if (!received) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      const Message message = decode(received->data);
      if (std::holds_alternative<message::Ready>(message) && ++ready == assign.world_ranks.size())
        send(message::Go{assign.attempt});
      if (const auto* outcome = std::get_if<message::Outcome>(&message)) return *outcome;
      if (const auto* gone = std::get_if<message::Gone>(&message)) {
        std::fprintf(stderr, "%s\n", gone->reason.c_str());
        std::exit(1);
      }
    }
  }

  void control() {
    MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::controller);
    const message::Finalist member{"member", config_of(2, 4), turn_steps_},
        same{"same", config_of(2, 4), turn_steps_}, other{"other", config_of(3, 2), turn_steps_};
    std::vector<double> of_itself, beside_itself, beside_other, of_runs;
    std::optional<double> alone_before;
    double step_s = 0;
    for (int round = -1; round < rounds_; ++round) {
      const bool is_back = round % 2 != 0;
      const auto self =
          is_back ? attempt(mailbox, {same, member}) : attempt(mailbox, {member, same});
      const auto mixed =
          is_back ? attempt(mailbox, {other, member}) : attempt(mailbox, {member, other});
      const double alone_s = mean_s(attempt(mailbox, {member}).measurement);
      if (round < 0) continue;  // everything becomes warm
      const auto of_member = [&](const message::Outcome& outcome) {
        return mean_s(is_back ? outcome.others[0] : outcome.measurement);
      };
      const double same_s = mean_s(is_back ? self.measurement : self.others[0]);
      of_itself.push_back(of_member(self) / same_s);
      // Its runs before and after it are compared with: drift cancels here, too.
      if (alone_before) {
        const double around_s = (alone_s + *alone_before) / 2;
        beside_itself.push_back(of_member(self) / around_s);
        beside_other.push_back(of_member(mixed) / around_s);
        of_runs.push_back(alone_s / *alone_before);
      }
      alone_before = alone_s;
      step_s += alone_s / rounds_;
    }
    std::printf(
        "%d ranks, %d rounds, %d steps a turn, %.2g s of steps a run; a step takes %.1f ms\n",
        topology_.world_size, rounds_, turn_steps_, slice_s_, 1e3 * step_s);
    print_ratios("a member in turns with itself, over the same:", of_itself);
    print_ratios("its steps in turns with itself, over those without turns:", beside_itself);
    print_ratios("its steps in turns with another, over those without turns:", beside_other);
    print_ratios("for comparison, a run without turns over the one before:", of_runs);
    for (int rank = 0; rank < topology_.world_size; ++rank)
      mailbox.send(rank, encode(Message(message::Quit{})));
    mailbox.flush(5);
  }

  int rounds_, turn_steps_;
  double slice_s_;
  Communicator world_ = Communicator::world().duplicate();
  Communicator node_ = world_.split_shared();
  Communicator to_workers_ = world_.duplicate(), to_controller_ = world_.duplicate();
  Topology topology_ = find_topology(world_, node_);
  GroupTable groups_{world_, node_, topology_, {}, {}};
  ModelSpec model_ = model_of_bench();
  std::uint64_t attempt_ = 0;
};

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: turns_bench ROUNDS STEPS_OF_A_TURN SECONDS_OF_A_RUN\n");
    return 2;
  }
  const dstune::MpiEnvironment environment(argc, argv);
  dstune::TurnsBench(std::atoi(argv[1]), std::atoi(argv[2]), std::atof(argv[3])).run();
}
