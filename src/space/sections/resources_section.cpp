#include <algorithm>

#include <fmt/format.h>

#include "sections/sections.hpp"

namespace dstune {

namespace {

/// A value of `num_gpus` or `num_nodes`, with its place.
struct Count {
  int value;
  std::optional<json::Node> node;
};

std::vector<Count> counts_of(const std::vector<Reading>& readings, int fallback) {
  if (readings.empty()) return {{fallback, std::nullopt}};
  std::vector<Count> counts;
  for (const Reading& reading : readings)
    counts.push_back({static_cast<int>(std::get<std::int64_t>(reading.value)), reading.node});
  return counts;
}

}  // namespace

int Machine::num_ranks() const {
  int total = 0;
  for (const int ranks : ranks_of_node) total += ranks;
  return total;
}

bool Machine::holds(const GroupShape& shape) const {
  return std::count_if(ranks_of_node.begin(), ranks_of_node.end(),
                       [&](int ranks) { return ranks >= shape.num_gpus; }) >= shape.num_nodes;
}

std::string Machine::refusal(const GroupShape& shape) const {
  if (is_restricted) {
    return fmt::format(
        "groups of {} ranks on each of {} node(s) are asked for, but --hostfile, --include and "
        "--exclude leave {} rank(s) on {} node(s): name more hosts or slots, or take smaller "
        "groups",
        shape.num_gpus, shape.num_nodes, num_ranks(), ranks_of_node.size());
  }
  return fmt::format(
      "groups of {} ranks on each of {} node(s) are asked for, but the job has {} rank(s) on {} "
      "node(s): start it with mpirun -np {}, or take smaller groups",
      shape.num_gpus, shape.num_nodes, num_ranks(), ranks_of_node.size(), shape.size());
}

void decide_shapes(const json::Node* resources, int default_ranks, SectionTarget& target) {
  JobSpec& job = *target.job;
  const Machine all = job.machine ? *job.machine : Machine{{default_ranks}};
  const int ranks_a_node = *std::min_element(all.ranks_of_node.begin(), all.ranks_of_node.end());
  const int every_node = target.num_gpus.empty() ? static_cast<int>(all.ranks_of_node.size()) : 1;
  const auto gpus = counts_of(target.num_gpus, ranks_a_node);
  const auto nodes = counts_of(target.num_nodes, every_node);

  const auto add = [&](const Count& num_gpus, const Count& num_nodes) {
    const GroupShape shape{num_gpus.value, num_nodes.value};
    job.shapes.push_back(shape);
    if (!job.machine || job.machine->holds(shape)) return;
    const auto& place = num_gpus.node ? num_gpus.node : num_nodes.node;
    target.problems->add(place->problem(job.machine->refusal(shape)));
  };
  // The last key varies fastest, as everywhere in the document.
  const auto keys = resources != nullptr ? resources->keys() : std::vector<std::string>{};
  const bool nodes_first = !keys.empty() && keys.front() == "num_nodes";
  if (nodes_first) {
    for (const auto& num_nodes : nodes) {
      for (const auto& num_gpus : gpus) add(num_gpus, num_nodes);
    }
  } else {
    for (const auto& num_gpus : gpus) {
      for (const auto& num_nodes : nodes) add(num_gpus, num_nodes);
    }
  }
  const int used = job.shapes.empty() ? 0 : job.shapes.front().size();
  if (resources == nullptr && job.machine && used < job.machine->num_ranks()) {
    job.warnings.push_back(fmt::format(
        "the nodes have different numbers of ranks: groups take {} on each, {} of {} ranks",
        ranks_a_node, used, job.machine->num_ranks()));
  }
}

}  // namespace dstune
