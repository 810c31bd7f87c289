#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "section.hpp"
#include "sections.hpp"

namespace dstune {

namespace {

/// A value or a list of values, each with its place.
std::vector<json::Node> one_or_many(const json::Node& node, json::Problems& problems) {
  if (!node.is_array()) return {node};
  auto elements = node.elements();
  if (elements.empty()) {
    problems.add(node.problem("an empty list leaves nothing to try: name at least one value"));
  }
  return elements;
}

void read_recompute(const json::Node& node, JobSpec& job, json::Problems& problems) {
  job.recompute.clear();
  for (const auto& element : one_or_many(node, problems)) {
    const auto mode = element.string(problems);
    if (!mode) continue;
    if (*mode == "none") {
      job.recompute.push_back(Recompute::none);
    } else if (*mode == "block") {
      job.recompute.push_back(Recompute::block);
    } else if (*mode == "selective") {
      problems.add(element.problem("selective recompute is not built yet: take none or block"));
    } else {
      problems.add(element.problem("expected \"none\" or \"block\", got \"" + *mode + "\""));
    }
  }
}

void read_memory(const json::Node& node, std::optional<std::int64_t>& memory_bytes,
                 json::Problems& problems) {
  if (!node.is_string()) {
    if (const auto bytes = node.integer(problems, 1)) memory_bytes = *bytes;
    return;
  }
  const auto text = node.value().get<std::string>();
  const auto bytes = parse_bytes(text);
  if (bytes && *bytes > 0) {
    memory_bytes = *bytes;
  } else {
    problems.add(
        node.problem("expected an amount of memory such as \"64GiB\", got \"" + text + "\""));
  }
}

template <class Word, std::size_t size>
void read_word(const json::Node& section, const std::string& key,
               const std::array<std::pair<std::string_view, Word>, size>& words, Word& field,
               json::Problems& problems) {
  const auto text = read_text(section, key, problems);
  if (!text) return;
  std::string known;
  for (const auto& [word, value] : words) {
    if (word == *text) {
      field = value;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  problems.add(section.find(key)->problem(fmt::format("\"{}\" is none of: {}", *text, known)));
}

void read_target(const json::Node& node, TargetSpec& target, json::Problems& problems) {
  if (node.is_string()) {
    if (node.value() == "self") {
      target.framework = TargetFramework::self;
    } else {
      problems.add(node.problem("expected \"self\" or an object with framework and attention"));
    }
    return;
  }
  if (!node.expect_object(problems)) return;
  node.refuse_unknown_keys(problems, {"framework", "attention"});
  using Framework = std::pair<std::string_view, TargetFramework>;
  using Attention = std::pair<std::string_view, TargetAttention>;
  read_word(node, "framework",
            std::array{Framework{"huggingface", TargetFramework::huggingface},
                       Framework{"self", TargetFramework::self}},
            target.framework, problems);
  read_word(node, "attention",
            std::array{Attention{"eager", TargetAttention::eager},
                       Attention{"sdpa", TargetAttention::sdpa},
                       Attention{"flash", TargetAttention::flash}},
            target.attention, problems);
}

/// Values of `num_gpus` or `num_nodes`, each with its place.
struct Count {
  int value;
  std::optional<json::Node> node;
};

std::vector<Count> read_counts(const json::Node* section, const std::string& key, int fallback,
                               json::Problems& problems) {
  const auto node = section ? given(*section, key) : std::nullopt;
  if (!node) return {{fallback, std::nullopt}};
  std::vector<Count> counts;
  for (const auto& element : one_or_many(*node, problems)) {
    if (const auto value = element.integer(problems, 1, 1 << 20)) {
      counts.push_back({static_cast<int>(*value), element});
    }
  }
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

void read_dstune(const json::Node& section, JobSpec& job, json::Problems& problems) {
  section.refuse_unknown_keys(
      problems,
      {"model", "sequence_length", "resources", "activation_recompute", "device_memory",
       "host_memory", "target", "trial_budget_s", "variables", "training_command", "workload"});
  if (const auto node = given(section, "activation_recompute")) {
    read_recompute(*node, job, problems);
  }
  if (const auto node = given(section, "device_memory"))
    read_memory(*node, job.device_memory_bytes, problems);
  if (const auto node = given(section, "host_memory"))
    read_memory(*node, job.host_memory_bytes, problems);
  if (const auto node = given(section, "target")) read_target(*node, job.target, problems);
  if (const auto node = given(section, "trial_budget_s")) {
    const auto seconds = node->number(problems, 0, 1e9);
    if (seconds && *seconds > 0) {
      job.tuning.measure.trial_budget_s = *seconds;
    } else if (seconds) {
      problems.add(node->problem("a trial needs some time: give more than 0 seconds"));
    }
  }
  job.training_command = read_text(section, "training_command", problems);
  if (const auto node = given(section, "workload")) {
    job.workload = read_workload(*node, job.folder, problems);
  }
}

void read_resources(const json::Node* section, const std::optional<Machine>& machine,
                    int default_ranks, JobSpec& job, json::Problems& problems) {
  std::optional<json::Node> resources;
  if (section != nullptr) resources = given(*section, "resources");
  if (resources) {
    if (!resources->expect_object(problems)) return;
    resources->refuse_unknown_keys(problems, {"num_gpus", "num_nodes"});
  }
  const Machine all = machine ? *machine : Machine{{default_ranks}};
  const int ranks_a_node = *std::min_element(all.ranks_of_node.begin(), all.ranks_of_node.end());
  const bool has_gpus = resources && given(*resources, "num_gpus");
  const int every_node = has_gpus ? 1 : static_cast<int>(all.ranks_of_node.size());
  const auto* node = resources ? &*resources : nullptr;
  const auto gpus = read_counts(node, "num_gpus", ranks_a_node, problems);
  const auto nodes = read_counts(node, "num_nodes", every_node, problems);

  const auto add = [&](const Count& num_gpus, const Count& num_nodes) {
    const GroupShape shape{num_gpus.value, num_nodes.value};
    job.shapes.push_back(shape);
    if (!machine || machine->holds(shape)) return;
    const auto& place = num_gpus.node ? num_gpus.node : num_nodes.node;
    problems.add(place->problem(machine->refusal(shape)));
  };
  // The last key varies fastest, as everywhere in the document.
  const auto keys = resources ? resources->keys() : std::vector<std::string>{};
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
  if (!resources && machine && used < machine->num_ranks()) {
    job.warnings.push_back(fmt::format(
        "the nodes have different numbers of ranks: groups take {} on each, {} of {} ranks",
        ranks_a_node, used, machine->num_ranks()));
  }
}

}  // namespace dstune
