#include "sections/planned_machine.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "sections/assumptions.hpp"

namespace dstune {

namespace {

/// No node has less: a smaller number lacks its unit.
constexpr std::int64_t least_host_memory_bytes = std::int64_t{1} << 30;

/// The place of a name: the option, or the key.
struct Place {
  const char* option;
  const char* key;
};

class Decider {
 public:
  Decider(const Overrides& overrides, const json::Node* section, SectionTarget& target)
      : overrides_(&overrides), section_(section), target_(&target) {
    MachineChoice& choice = target.job->machine_choice;
    const MachineChoice& given = overrides.machine;
    // The command line comes first, each value by itself.
    const auto take = [](auto& of, const auto& from) {
      if (from) of = from;
    };
    take(choice.device, given.device);
    take(choice.network, given.network);
    take(choice.profile, given.profile);
    take(choice.gpus_per_node, given.gpus_per_node);
    take(choice.num_nodes, given.num_nodes);
    take(choice.host_memory_bytes, given.host_memory_bytes);
  }

  void run() {
    JobSpec& job = *target_->job;
    const MachineChoice& choice = job.machine_choice;
    Cluster cluster;
    bool is_of_processors = overrides_->is_on_cpus;
    if (choice.profile) {
      ProfiledMachine measured = of_profile(*choice.profile);
      cluster = std::move(measured.cluster);
      is_of_processors = is_of_processors || measured.is_of_processors;
    }
    if (choice.device) {
      cluster.device =
          named<DeviceSpec>(*choice.device, find_device_spec, device_names(), {"--device", "name"});
      cluster.node.reset();
      is_of_processors = overrides_->is_on_cpus;
    }
    if (!cluster.node && cluster.device)
      if (const NodeSpec* const node = find_node_spec(cluster.device->node)) cluster.node = *node;
    if (choice.network)
      cluster.network = named<NetworkSpec>(*choice.network, find_network_spec, network_names(),
                                           {"--network", "network"});
    if (choice.gpus_per_node) cluster.gpus_per_node = choice.gpus_per_node;
    if (choice.num_nodes) cluster.num_nodes = choice.num_nodes;
    if (choice.host_memory_bytes) cluster.host_memory_bytes = choice.host_memory_bytes;
    if (choice.host_memory_bytes && *choice.host_memory_bytes < least_host_memory_bytes)
      target_->problems->add(place({"--host-memory", "host_memory"})
                                 .with(fmt::format("{} are too few for a node: write its memory "
                                                   "with a unit, such as 512GiB",
                                                   format_bytes(*choice.host_memory_bytes))));
    if (overrides_->has_hostfile && (choice.gpus_per_node || choice.num_nodes))
      target_->problems->add(
          place({choice.gpus_per_node ? "--gpus-per-node" : "--nodes", "gpus_per_node"})
              .with("--hostfile tells the nodes and their GPUs: leave one of the two out"));
    job.target.on_gpu = !is_of_processors;
    if (!overrides_->has_hostfile && (choice.gpus_per_node || choice.num_nodes)) {
      const int nodes = choice.num_nodes.value_or(1);
      const int gpus = choice.gpus_per_node.value_or(usual_gpus(cluster));
      job.machine =
          Machine{std::vector<int>(static_cast<std::size_t>(nodes), gpus), Machine::Limit::plan};
    }
    job.cluster = std::move(cluster);
  }

  static int usual_gpus(const Cluster& cluster) {
    return cluster.gpus_per_node.value_or(cluster.node ? cluster.node->num_gpus : 1);
  }

 private:
  /// A problem's place, to be completed.
  struct At {
    Problem problem;
    [[nodiscard]] Problem with(std::string message) const {
      Problem result = problem;
      result.message = std::move(message);
      return result;
    }
  };

  /// The key in the document, unless the command line has the value.
  [[nodiscard]] At place(const Place& where) const {
    const auto device = section_ != nullptr ? section_->find("device") : std::nullopt;
    if (!device) return {{where.option, "", 0, ""}};
    const auto member = device->is_object() ? device->find(where.key) : std::nullopt;
    return {member.value_or(*device).problem("")};
  }

  template <class Spec>
  std::optional<Spec> named(const std::string& name, const Spec* (*find)(std::string_view),
                            const std::vector<std::string_view>& known, const Place& where) {
    if (const Spec* const spec = find(name)) return *spec;
    target_->problems->add(
        place(where).with(fmt::format("\"{}\" is not known{}: take one of {}", name,
                                      json::suggestion(name, known), fmt::join(known, ", "))));
    return std::nullopt;
  }

  ProfiledMachine of_profile(const std::string& path) {
    const bool is_of_option = overrides_->machine.profile.has_value();
    try {
      return overrides_->machine_of_profile(is_of_option ? path
                                                         : path_from(target_->job->folder, path));
    } catch (const InputError& error) {
      add_all(error, *target_->problems);
    } catch (const IoError& error) {
      target_->problems->add(place({"--profile", "profile"}).with(error.what()));
    }
    return {};
  }

  const Overrides* overrides_;
  const json::Node* section_;
  SectionTarget* target_;
};

/// The Trainer's names for `optim`, and other names of the same.
constexpr std::array<std::pair<std::string_view, TargetOptimizer>, 12> optimizer_names{{
    {"adamw_torch", TargetOptimizer::adamw_torch},
    {"adamw_hf", TargetOptimizer::adamw_torch},
    {"adamw_torch_fused", TargetOptimizer::adamw_torch_fused},
    {"adamw_apex_fused", TargetOptimizer::adamw_torch_fused},
    {"paged_adamw_32bit", TargetOptimizer::adamw_torch_fused},
    {"adamw_8bit", TargetOptimizer::adamw_8bit},
    {"adamw_bnb_8bit", TargetOptimizer::adamw_8bit},
    {"paged_adamw_8bit", TargetOptimizer::adamw_8bit},
    {"adafactor", TargetOptimizer::adafactor},
    {"lion_32bit", TargetOptimizer::lion},
    {"paged_lion_32bit", TargetOptimizer::lion},
    {"sgd", TargetOptimizer::sgd},
}};

/// PyTorch 2.8, from which on the Trainer's AdamW is the fused one (transformers,
/// training_args.py), and the first DeepSpeed that came out after it.
constexpr int torch_with_fused_default = 20800;
constexpr Version deepspeed_after_it{0, 17, 5};

/// From this one on the master copy of stages 1 and 2 is pinned where `pin_memory` says so; before,
/// always (stage_1_and_2.py).
constexpr Version asks_for_master_copy{0, 18, 3};

bool names_optimizer(const json::Value& config) {
  const auto section = config.find("optimizer");
  return section != config.end() && !section->is_null() &&
         !(section->is_object() && !section->contains("type"));
}

}  // namespace

void decide_machine(const Overrides& overrides, const json::Node* section, SectionTarget& target) {
  // A job on GPUs is for a training on GPUs.
  target.job->target.on_gpu = overrides.is_here_on_gpus;
  if (!overrides.is_plan) return;
  Decider decider(overrides, section, target);
  if (overrides.has_hostfile || target.job->machine_choice.is_made()) decider.run();
}

int usual_ranks(const JobSpec& job, int fallback) {
  return job.cluster ? Decider::usual_gpus(*job.cluster) : fallback;
}

void decide_trainable(const Overrides& overrides, const json::Node* section,
                      SectionTarget& target) {
  JobSpec& job = *target.job;
  std::optional<Trainable>& trainable = job.target.trainable;
  const auto place = section != nullptr ? given(*section, "trainable") : std::nullopt;
  if (!place) return;
  if (!trainable) {
    target.problems->add(place->problem("nothing trains: name LoRA's rank, or names"));
    return;
  }
  if (trainable->rank == 0 && !trainable->targets.empty())
    target.problems->add(place->problem("targets are LoRA's: add its rank"));
  if (trainable->rank > 0 && trainable->targets.empty()) trainable->targets = {"all-linear"};
  if (!overrides.is_plan && job.has_own_step())
    target.problems->add(
        place->problem("the built-in step trains all parameters: run it in your own training "
                       "(\"workload\": \"deepspeed\"), or plan it (dstune-mpi plan)"));
}

void decide_target_optimizer(const Overrides& overrides, const json::Node* section, JobSpec& job) {
  if (!job.target.on_gpu || job.target.framework == TargetFramework::self) return;
  const auto target = section != nullptr ? given(*section, "target") : std::nullopt;
  const bool is_said = target && target->is_object() && given(*target, "optimizer");
  if (names_optimizer(job.ds_config)) {
    if (is_said && job.target.optimizer != TargetOptimizer::of_config)
      job.warnings.push_back(fmt::format(
          "dstune.target.optimizer: {} is planned; DeepSpeed makes the one that the section "
          "optimizer names: leave one of the two out",
          to_text(job.target.optimizer)));
    return;
  }
  if (is_said) return;
  if (const CommandValue* const optim = job.command.find("optim")) {
    for (const auto& [name, optimizer] : optimizer_names)
      if (optim->text == name) job.target.optimizer = optimizer;
    if (job.target.optimizer != TargetOptimizer::of_config) return;
  }
  const int torch = job.target.torch > 0 ? job.target.torch
                    : overrides.python   ? find_torch(*overrides.python)
                                         : 0;
  const bool is_new =
      torch > 0 ? torch >= torch_with_fused_default : job.deepspeed_version >= deepspeed_after_it;
  job.target.torch = torch;
  job.target.optimizer = is_new ? TargetOptimizer::adamw_torch_fused : TargetOptimizer::adamw_torch;
  const std::string release =
      torch > 0 ? torch_text(torch)
                : fmt::format("a PyTorch as old as DeepSpeed {}", to_text(job.deepspeed_version));
  job.assumptions.push_back(
      fmt::format("the optimizer is {}, which Hugging Face's Trainer takes with {}, since the "
                  "config names none "
                  "(dstune.target.optimizer)",
                  to_text(job.target.optimizer), release));
}

void decide_pinning(JobSpec& job) {
  const auto pins = [&](const std::string& section) {
    const std::string pointer = "/zero_optimization/" + section;
    const Knob* const knob = job.knobs().find_knob(pointer + "/pin_memory");
    const bool by_default = std::get<bool>(job.knobs().default_value(*knob));
    const json::Value::json_pointer place(pointer);
    if (!job.ds_config.contains(place)) return by_default;
    // A section or its key may be a list of candidates.
    const auto any_of = [](const json::Value& value, auto&& test) {
      return value.is_array() ? std::ranges::any_of(value, test) : test(value);
    };
    return any_of(job.ds_config[place], [&](const json::Value& one) {
      if (!one.is_object()) return false;  // null: nothing is offloaded
      if (!one.contains("pin_memory")) return by_default;
      return any_of(one["pin_memory"], [&](const json::Value& value) {
        return value.is_boolean() ? value.get<bool>() : by_default;
      });
    });
  };
  job.target.pins_optimizer = pins("offload_optimizer");
  job.target.pins_master_copy =
      job.target.pins_optimizer || job.deepspeed_version < asks_for_master_copy;
  job.target.pins_partitions = pins("offload_param");
}

}  // namespace dstune
