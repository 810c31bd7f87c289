// How near the planned memory of trainings comes to what PyTorch's tensors took
// (docs/figures/memory.md), as tables for scripts/figures.py:
//   memory_figures mpi_tests/unit/plan/data/target_memory.json
// Nothing is measured; scripts/tools/check_target_memory.py has written the file.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "json_tables.hpp"
#include "target_measurements.hpp"

namespace dstune {
namespace {

using bench::JsonTable;

double percent_off(double planned, double measured) {
  return 100 * (planned / measured - 1);
}

/// Forward and backward, without an optimizer.
JsonTable table_of_models(const json::Value& rows) {
  JsonTable table{"models",
                  {"model", "attention", "precision", "batch", "recompute", "measured_mib",
                   "planned_mib", "error", "states_mib"}};
  for (const json::Value& row : rows) {
    const double measured = row.at("peak_bytes"), mib = 1 << 20;
    const auto planned = static_cast<double>(test::planned_training_bytes(row));
    std::string name = row.at("name");
    if (const int steps = row.at("accumulation_steps"); steps > 1)
      name += fmt::format(", {} micro-steps", steps);
    table.rows.push_back({name, row.at("attention"), row.at("precision"),
                          fmt::format("{} × {}", row.at("micro_batch").get<int>(),
                                      row.at("sequence_length").get<int>()),
                          row.at("recompute"), measured / mib, planned / mib,
                          percent_off(planned, measured),
                          2 * row.at("parameter_bytes").get<double>() / mib});
  }
  return table;
}

std::string kind_of(const json::Value& row) {
  const json::Value& zero = row.at("zero_optimization");
  const std::string trains = row.value("trains", "all");
  if (trains == "lora") return "LoRA";
  if (trains == "adamw_8bit") return "AdamW with states of 8 bits";
  if (zero.contains("zero_quantized_weights") || zero.contains("zero_quantized_gradients"))
    return "qwZ and qgZ: quantized traffic";
  if (zero.contains("zero_hpz_partition_size") || zero.contains("mics_shard_size"))
    return "hpZ and MiCS: parts of a group";
  const bool is_offloaded = zero.contains("offload_optimizer");
  if (row.contains("data_types"))
    return is_offloaded ? "optimizer on the host, sums in fp32" : "sums of gradients in fp32";
  return is_offloaded ? "optimizer on the host" : "all on the device";
}

/// Errors of each kind of step, in percent.
JsonTable table_of_kinds(const json::Value& rows) {
  struct Kind {
    std::string name, release;
    int steps = 0;
    std::vector<double> begin, peak;
  };
  std::vector<Kind> kinds;
  for (const json::Value& row : rows) {
    const std::string name = kind_of(row), release = row.value("deepspeed", "0.19.6");
    auto kind = std::ranges::find_if(
        kinds, [&](const Kind& each) { return each.name == name && each.release == release; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {name, release, 0, {}, {}});
    const TargetMemory memory = test::planned_step(row);
    const auto error = [&](std::int64_t planned, double measured) {
      return percent_off(static_cast<double>(planned + memory.host_bytes), measured);
    };
    ++kind->steps;
    if (row.contains("loss_bytes"))
      kind->begin.push_back(error(memory.instants.at("loss"), row.at("loss_bytes")));
    kind->peak.push_back(
        error(std::max(test::before_update(memory), memory.instants.at("update")),
              std::max(row.at("backward_bytes").get<double>(), row.value("update_bytes", 0.0))));
  }
  JsonTable table{"kinds",
                  {"kind", "release", "steps", "peak_mean", "peak_least", "peak_most",
                   "begin_least", "begin_most"}};
  for (const Kind& kind : kinds) {
    double sum = 0;
    for (const double each : kind.peak) sum += std::abs(each);
    table.rows.push_back({kind.name, kind.release, kind.steps,
                          sum / static_cast<double>(kind.peak.size()), std::ranges::min(kind.peak),
                          std::ranges::max(kind.peak)});
    for (const auto& which :
         {std::ranges::min_element(kind.begin), std::ranges::max_element(kind.begin)})
      table.rows.back().push_back(which == kind.begin.end() ? json::Value() : json::Value(*which));
  }
  return table;
}

/// Steps with nothing but a stage, buckets and offload, beside usual estimates: the states alone,
/// and those that DeepSpeed's autotuner takes.
JsonTable table_of_steps(const json::Value& rows) {
  constexpr double parameters = 937'728;
  JsonTable table{
      "steps",
      {"stage", "setting", "measured_kb", "planned_kb", "error", "states_kb", "autotuner_kb"}};
  for (const json::Value& row : rows) {
    const json::Value& zero = row.at("zero_optimization");
    const std::string kind = kind_of(row);
    if (row.contains("deepspeed") || row.value("family", "") == "llama" ||
        row.at("ranks").get<int>() != 2 ||
        (kind != "all on the device" && kind != "optimizer on the host"))
      continue;
    const TargetMemory memory = test::planned_step(row);
    const double measured =
        std::max(row.at("backward_bytes").get<double>(), row.at("update_bytes").get<double>());
    const auto planned = static_cast<double>(
        memory.host_bytes + std::max(test::before_update(memory), memory.instants.at("update")));
    std::string setting = row.at("precision");
    if (zero.contains("reduce_bucket_size"))
      setting += fmt::format(", bucket {}k", zero.at("reduce_bucket_size").get<int>() / 1000);
    if (zero.contains("overlap_comm")) setting += ", overlap";
    if (zero.contains("offload_optimizer")) setting += ", offload";
    if (const int steps = row.at("accumulation_steps"); steps > 1)
      setting += fmt::format(", {} micro-steps", steps);
    const int stage = zero.at("stage");
    const double bytes = row.at("precision") == "fp32" ? 4 : 2, states = bytes == 4 ? 8 : 12;
    const auto usual = [&](double optimizer) {
      return parameters * ((stage < 3 ? bytes : bytes / 2) + (stage < 2 ? bytes : bytes / 2) +
                           (stage < 1 ? optimizer : optimizer / 2));
    };
    table.rows.push_back({stage, setting, measured / 1000, planned / 1000,
                          percent_off(planned, measured), usual(states) / 1000,
                          usual(bytes == 4 ? 8 : 16) / 1000});
  }
  return table;
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  using namespace dstune;
  if (argc != 2) {
    std::fprintf(stderr, "usage: memory_figures mpi_tests/unit/plan/data/target_memory.json\n");
    return 2;
  }
  try {
    const json::Document measured = json::Document::read(argv[1]);
    const json::Value& steps = measured.root().at("deepspeed");
    bench::print_json_tables({table_of_models(measured.root().at("training")),
                              table_of_kinds(steps), table_of_steps(steps)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
