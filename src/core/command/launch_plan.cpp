#include "command/launch_plan.hpp"

#include <fmt/format.h>

namespace dstune {

namespace {

std::vector<std::string> deepspeed_words(const LaunchRequest& request) {
  std::vector<std::string> words;
  if (request.hostfile) words = {"--hostfile", *request.hostfile};
  for (const char* const flag : {"--num_nodes", "--num_gpus"}) {
    words.emplace_back(flag);
    words.push_back(std::to_string(flag == std::string_view("--num_nodes")
                                       ? request.shape.num_nodes
                                       : request.shape.num_gpus));
  }
  return words;
}

/// Each node runs one: the others are found by an address.
std::string plan_torchrun(const LauncherChain& chain, const GroupShape& shape, WordEdits& edits) {
  const GivenOptions& options = chain.options;
  if (std::string problem = variable_problem(options, {"--nnodes", "--nproc_per_node"});
      !problem.empty())
    return problem;
  if (shape.num_nodes > 1 &&
      (options.find("--standalone") != nullptr ||
       (options.find("--rdzv_endpoint") == nullptr && options.find("--master_addr") == nullptr)))
    return fmt::format(
        "{} does not say where {} nodes find each other: write --nnodes, --rdzv_backend and "
        "--rdzv_endpoint",
        chain.name, shape.num_nodes);
  // Absent, they are 1.
  const std::string nodes = std::to_string(shape.num_nodes);
  if (shape.num_nodes > 1)
    set_or_add_option(options, "--nnodes", nodes, edits);
  else
    set_option(options, "--nnodes", nodes, edits);
  const std::string ranks = std::to_string(shape.num_gpus);
  if (shape.num_gpus > 1)
    set_or_add_option(options, "--nproc_per_node", ranks, edits);
  else
    set_option(options, "--nproc_per_node", ranks, edits);
  return "";
}

/// One interpreter becomes DeepSpeed's launcher with the same one.
void plan_python(const LauncherChain& chain, const LaunchRequest& request, WordEdits& edits) {
  if (request.shape.size() == 1) return;
  std::vector<std::string> words{"-m", "deepspeed.launcher.runner"};
  for (std::string& word : deepspeed_words(request)) words.push_back(std::move(word));
  if (const GivenOption* module = chain.options.find("-m")) {
    words.emplace_back("--module");
    edits.push_back({module->word, true, std::move(words)});
  } else {
    edits.push_back({chain.options.end, false, std::move(words)});
  }
}

LaunchCounts torchrun_counts(const LauncherChain& chain) {
  const auto count = [&](std::string_view name) {
    const GivenOption* const given = chain.options.find(name);
    return given == nullptr ? std::optional(1) : count_of(given->value);
  };
  return {chain.name, count("--nnodes"), count("--nproc_per_node"), {}};
}

void plan_inner(const LauncherChain& chain, const LaunchRequest& request, LaunchPlan& plan) {
  const GroupShape& shape = request.shape;
  const bool is_started = chain.starter != StarterKind::none;
  switch (chain.kind) {
    case LauncherKind::deepspeed:
      plan.problem = plan_deepspeed(chain, request, plan.edits);
      break;
    case LauncherKind::torchrun:
      plan.problem = plan_torchrun(chain, shape, plan.edits);
      break;
    case LauncherKind::accelerate:
      plan_accelerate(chain, request, plan);
      break;
    case LauncherKind::python:
      if (!is_started) plan_python(chain, request, plan.edits);
      break;
    case LauncherKind::script:
      if (!is_started) {
        std::vector<std::string> words = deepspeed_words(request);
        words.insert(words.begin(), "deepspeed");
        plan.edits.push_back({chain.word, false, std::move(words)});
      }
      break;
    case LauncherKind::unknown:
      plan.problem =
          chain.reason +
          ": write the launcher itself in the command (deepspeed, torchrun, accelerate launch, or "
          "python behind srun or mpirun)";
  }
}

}  // namespace

std::string variable_problem(const GivenOptions& options,
                             const std::vector<std::string_view>& names) {
  for (const GivenOption& each : options.all)
    for (const std::string_view name : names)
      if (each.name == name && is_variable(each.value))
        return fmt::format("{} is {}, which only the shell knows: write a number", name,
                           each.value);
  return "";
}

LaunchPlan plan_launch(const std::vector<std::string>& words, const LaunchRequest& request) {
  LaunchPlan plan;
  const LauncherChain chain = read_launcher(words);
  const GroupShape& shape = request.shape;
  if (chain.kind != LauncherKind::unknown && chain.starter != StarterKind::none) {
    const bool is_one = chain.kind == LauncherKind::python || chain.kind == LauncherKind::script;
    // DeepSpeed's launcher goes to the other nodes itself, unless it may not.
    const bool starts_all =
        chain.kind == LauncherKind::deepspeed && chain.options.find("--no_ssh") == nullptr;
    const LaunchCounts tasks = starter_counts(chain);
    if (!starts_all)
      plan.problem = plan_starter(chain, shape.num_nodes, is_one ? shape.num_gpus : 1, plan.edits);
    else if (tasks.num_ranks.value_or(1) > 1)
      plan.problem = fmt::format("{} starts {} {} times: leave one of them out", chain.starter_name,
                                 chain.name, *tasks.num_ranks);
  }
  if (plan.problem.empty()) plan_inner(chain, request, plan);
  if (!plan.problem.empty()) plan.edits.clear();
  return plan;
}

LaunchCounts counts_of(const std::vector<std::string>& words, const std::string& folder) {
  const LauncherChain chain = read_launcher(words);
  LaunchCounts counts{chain.name, {}, {}, {}};
  const bool is_started = chain.starter != StarterKind::none;
  if (chain.kind == LauncherKind::deepspeed) {
    counts = deepspeed_counts(chain);
  } else if (chain.kind == LauncherKind::torchrun) {
    counts = torchrun_counts(chain);
  } else if (chain.kind == LauncherKind::accelerate) {
    counts = accelerate_counts(chain, folder);
  } else if (chain.kind != LauncherKind::unknown && is_started) {
    counts = starter_counts(chain);
  } else if (chain.kind == LauncherKind::python) {
    counts = {chain.name, 1, 1, {}};
  }
  if (!counts.num_ranks && counts.num_nodes && counts.num_gpus)
    counts.num_ranks = *counts.num_nodes * *counts.num_gpus;
  return counts;
}

}  // namespace dstune
