#include "sections/sections.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/plugin_library.hpp"

namespace dstune {

namespace {

KeyTable table_of(std::span<const SectionRow> rows) {
  return {{rows.begin(), rows.end()}, KeyTable::Order::of_document};
}

/// Reads a section by its rows; each row's values are applied once they are sound.
void read_section(const json::Node& section, const KeyTable& table,
                  std::span<const SectionRow> rows, SectionTarget& target) {
  table.read(section, *target.problems, [&](const KeyReading& reading) {
    const SectionRow& row = rows[reading.row];
    if (!reading.is_sound || reading.values.empty()) return;
    const Reading& first = reading.values.front();
    if (row.effect == KnobEffect::refused && first.value != table.default_value(reading.row)) {
      target.problems->add(first.node.problem(fmt::format(
          "{} {} is not built: {}", last_key(row.pointer), first.node.value().dump(), row.hint)));
    } else if (row.apply != nullptr) {
      row.apply(target, reading.values);
    }
  });
}

/// What no key is wrong for by itself. Said at the key that the document has.
void add_order_problem(const json::Node& section, const char* upper, const char* lower,
                       json::Problems& problems) {
  auto place = section.find(upper);
  if (!place || place->is_null()) place = section.find(lower);
  problems.add(
      (place ? *place : section).problem(fmt::format("{} is below {}: raise it", upper, lower)));
}

// What values stand for: groups of ranks, files of models and tables, plug-ins.

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

void add_all(const InputError& error, json::Problems& problems) {
  for (const auto& problem : error.problems()) problems.add(problem);
}

std::optional<ModelSpec> read_model_file(const std::string& path, json::Problems& problems) {
  try {
    return import_huggingface(json::Document::read(path));
  } catch (const InputError& error) {
    add_all(error, problems);
    return std::nullopt;
  }
}

/// A file where there is one or where the name looks like one, else a preset.
bool names_a_file(const std::string& name, const std::string& path) {
  std::error_code ignored;
  return name.ends_with(".json") || std::filesystem::is_regular_file(path, ignored);
}

std::optional<ModelSpec> read_preset(const std::string& name, const json::Node* place,
                                     json::Problems& problems) {
  try {
    return preset(name);
  } catch (const InputError& error) {
    for (const auto& problem : error.problems()) {
      problems.add(place ? place->problem(problem.message) : problem);
    }
    return std::nullopt;
  }
}

/// The object without keys that are null, which stand for their defaults.
json::Value without_nulls(const json::Value& object) {
  json::Value kept = json::Value::object();
  for (const auto& [key, value] : object.items())
    if (!value.is_null()) kept[key] = value;
  // The family is a word: read in any case of letters.
  if (kept.contains("family")) kept["family"] = lower_case(kept["family"].get<std::string>());
  return kept;
}

void check_row(const json::Node& row, json::Problems& problems) {
  if (!row.expect_object(problems)) return;
  row.refuse_unknown_keys(problems, {"step_time_s", "step_times_s", "peak_memory_bytes", "status"});
  const auto one = row.find("step_time_s");
  const auto series = row.find("step_times_s");
  if (one) one->number(problems, 0.0);
  if (series && !series->is_array()) {
    problems.add(series->problem("expected a list of step times in seconds"));
  } else if (series) {
    for (const auto& time : series->elements()) time.number(problems, 0.0);
    if (series->elements().empty()) {
      problems.add(series->problem("an empty series can not be replayed: give one time at least"));
    }
  }
  if (const auto bytes = given(row, "peak_memory_bytes")) bytes->integer(problems, 0);
  bool is_ok = true;
  const auto status_node = given(row, "status");
  const auto status = status_node ? status_node->string(problems) : std::nullopt;
  if (status) {
    const auto known = from_text<Status>(*status);
    is_ok = known == Status::ok;
    if (!known) {
      problems.add(status_node->problem(
          "\"" + *status +
          "\" is no status: take ok, raced_out, out_of_memory, timed_out or failed"));
    }
  }
  if (one && series) {
    problems.add(row.problem("step_time_s and step_times_s exclude each other: keep one"));
  } else if (is_ok && !one && !series) {
    problems.add(row.problem("a row with status ok needs step_time_s or step_times_s"));
  }
}

}  // namespace

std::optional<json::Node> given(const json::Node& section, const std::string& key) {
  auto node = section.find(key);
  if (node && node->is_null()) node.reset();
  return node;
}

std::string path_from(const std::string& folder, const std::string& path) {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

void read_autotuning(const json::Node& section, SectionTarget& target) {
  static const KeyTable table = table_of(autotuning_rows());
  read_section(section, table, autotuning_rows(), target);
  const TuningOptions& tuning = target.job->tuning;
  if (tuning.measure.end_profile_step < tuning.measure.start_profile_step)
    add_order_problem(section, "end_profile_step", "start_profile_step", *target.problems);
  if (tuning.max_train_batch_size && *tuning.max_train_batch_size < tuning.min_train_batch_size)
    add_order_problem(section, "max_train_batch_size", "min_train_batch_size", *target.problems);
  if (tuning.max_train_micro_batch_size_per_gpu < tuning.min_train_micro_batch_size_per_gpu)
    add_order_problem(section, "max_train_micro_batch_size_per_gpu",
                      "min_train_micro_batch_size_per_gpu", *target.problems);
}

void read_dstune(const json::Node& section, SectionTarget& target) {
  static const KeyTable table = table_of(dstune_rows());
  read_section(section, table, dstune_rows(), target);
}

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

std::optional<ModelSpec> find_model(const std::optional<std::string>& override_name,
                                    const std::optional<json::Node>& node,
                                    const std::string& folder, json::Problems& problems) {
  if (override_name) {
    if (names_a_file(*override_name, *override_name)) {
      return read_model_file(*override_name, problems);
    }
    return read_preset(*override_name, nullptr, problems);
  }
  if (!node) return std::nullopt;
  if (node->is_string()) {
    const auto name = node->value().get<std::string>();
    const auto path = path_from(folder, name);
    if (names_a_file(name, path)) return read_model_file(path, problems);
    return read_preset(name, &*node, problems);
  }
  if (const auto path = node->find("hf_config"))
    return read_model_file(path_from(folder, path->value().get<std::string>()), problems);
  const json::Value written = without_nulls(node->value());
  return read_model(json::Node(node->document(), written, node->pointer()), problems);
}

void read_replay_table(const std::string& path, WorkloadSpec& workload, json::Problems& problems) {
  workload.table_path = path;
  try {
    const auto document = json::Document::read(workload.table_path);
    const auto table = document.node();
    if (!table.expect_object(problems)) return;
    for (const auto& name : table.keys()) check_row(*table.find(name), problems);
    workload.table = document.root();
  } catch (const InputError& error) {
    add_all(error, problems);
  }
}

void set_plugin_library(const json::Node& node, const std::string& path, WorkloadSpec& workload,
                        json::Problems& problems) {
  // With a slash in it, so that the loader searches nowhere else.
  workload.library_path = std::filesystem::absolute(path).lexically_normal();
  try {
    check_plugin_library(workload.library_path);
  } catch (const Error& error) {
    problems.add(node.problem(error.what()));
  }
}

}  // namespace dstune
