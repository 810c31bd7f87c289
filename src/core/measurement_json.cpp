#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "dstune/core/measurement.hpp"

namespace dstune {

namespace {

using json::Node;
using json::Problems;
using json::Value;

constexpr double us_per_s = 1e6;

/// JSON has no NaN: a loss that is no number is null.
Value losses_json(const std::vector<double>& losses) {
  Value list = Value::array();
  for (double loss : losses) list.push_back(std::isfinite(loss) ? Value(loss) : Value(nullptr));
  return list;
}

class Reader {
 public:
  explicit Reader(Problems& problems) : problems_(problems) {}

  /// A member that must be there; a problem and nothing where it is not.
  std::optional<Node> member(const Node& node, const std::string& key) {
    std::optional<Node> found = node.find(key);
    if (!found && node.is_object())
      problems_.add(node.problem(fmt::format("the key \"{}\" is missing", key)));
    return found;
  }
  void section(const Node& node, const std::vector<std::string_view>& keys) {
    if (node.expect_object(problems_)) node.refuse_unknown_keys(problems_, keys);
  }
  double amount(const Node& node) { return node.number(problems_, 0).value_or(0); }
  double amount(const Node& node, const std::string& key) {
    const auto found = member(node, key);
    return found ? amount(*found) : 0;
  }
  std::int64_t count(const Node& node) { return node.integer(problems_, 0).value_or(0); }
  std::int64_t count(const Node& node, const std::string& key, std::int64_t high) {
    const auto found = member(node, key);
    return found ? found->integer(problems_, 0, high).value_or(0) : 0;
  }
  std::string text(const Node& node, const std::string& key) {
    const auto found = member(node, key);
    return found ? found->string(problems_).value_or("") : "";
  }
  template <class Element>
  auto list(const Node& node, const std::string& key, Element element) {
    std::vector<decltype(element(node))> values;
    const auto found = member(node, key);
    if (!found) return values;
    if (!found->is_array())
      problems_.add(found->problem("expected a list, got " + json::type_words(found->value())));
    for (const Node& each : found->elements()) values.push_back(element(each));
    return values;
  }
  template <class Member>
  auto map(const Node& node, const std::string& key, Member read) {
    std::map<std::string, decltype(read(node))> values;
    const auto found = member(node, key);
    if (!found || !found->expect_object(problems_)) return values;
    for (const std::string& name : found->keys()) values[name] = read(*found->find(name));
    return values;
  }

 private:
  Problems& problems_;
};

constexpr std::int64_t largest_int = std::numeric_limits<int>::max();

}  // namespace

Value to_json(const GpuCondition& gpu) {
  return {{"sm_clock_mhz", gpu.sm_clock_mhz},
          {"max_sm_clock_mhz", gpu.max_sm_clock_mhz},
          {"temperature_c", gpu.temperature_c},
          {"power_w", gpu.power_w},
          {"throttled_by", gpu.throttled_by}};
}

Value to_json(const Measurement& measurement) {
  Value out = Value::object();
  out["status"] = to_text(measurement.status);
  out["reason"] = measurement.reason;
  out["fwd"] = measurement.forward_s * us_per_s;
  out["bwd"] = measurement.backward_s * us_per_s;
  out["step"] = measurement.update_s * us_per_s;
  out["flops_per_step"] = measurement.flops_per_step;
  out["step_times_s"] = measurement.step_times_s;
  out["warmup_steps"] = measurement.warmup_steps;
  out["skipped_steps"] = measurement.skipped_steps;
  out["losses"] = losses_json(measurement.losses);
  out["peak_memory_bytes"] = {{"total", measurement.peak_memory.total_bytes},
                              {"categories", measurement.peak_memory.category_bytes},
                              {"process", measurement.peak_memory.process_bytes},
                              {"host", measurement.peak_memory.host_bytes}};
  const PeakMemory& peak = measurement.peak_memory;
  if (peak.gpu_bytes > 0) out["peak_memory_bytes"]["gpu"] = peak.gpu_bytes;
  if (peak.communicator_bytes > 0)
    out["peak_memory_bytes"]["communicators"] = peak.communicator_bytes;
  if (peak.graph_bytes > 0) out["peak_memory_bytes"]["graphs"] = peak.graph_bytes;
  out["group"] = {{"world_ranks", measurement.world_ranks}, {"hosts", measurement.hosts}};
  if (!measurement.rank_forward_s.empty()) out["rank_forward_s"] = measurement.rank_forward_s;
  if (measurement.energy_j) out["energy_j"] = *measurement.energy_j;
  out["overhead_s"] = measurement.overhead_s;
  if (measurement.gpu) out["gpu"] = to_json(*measurement.gpu);
  if (!measurement.not_comparable.empty()) out["not_comparable"] = measurement.not_comparable;
  return out;
}

Measurement measurement_from_json(const Node& node) {
  Problems problems;
  Reader reader(problems);
  Measurement out;
  reader.section(node, {"status", "reason", "fwd", "bwd", "step", "flops_per_step", "step_times_s",
                        "warmup_steps", "skipped_steps", "losses", "peak_memory_bytes", "group",
                        "rank_forward_s", "energy_j", "overhead_s", "gpu", "not_comparable"});
  if (const auto status = reader.member(node, "status")) {
    const auto word = status->string(problems);
    const auto parsed = word ? parse_status(*word) : std::nullopt;
    if (word && !parsed)
      problems.add(status->problem(fmt::format("\"{}\" is no status of an experiment", *word)));
    out.status = parsed.value_or(Status::failed);
  }
  const auto amount = [&reader](const Node& each) { return reader.amount(each); };
  const auto count = [&reader](const Node& each) { return reader.count(each); };
  out.reason = reader.text(node, "reason");
  out.forward_s = reader.amount(node, "fwd") / us_per_s;
  out.backward_s = reader.amount(node, "bwd") / us_per_s;
  out.update_s = reader.amount(node, "step") / us_per_s;
  out.flops_per_step = reader.amount(node, "flops_per_step");
  out.step_times_s = reader.list(node, "step_times_s", amount);
  out.warmup_steps = static_cast<int>(
      reader.count(node, "warmup_steps", static_cast<std::int64_t>(out.step_times_s.size())));
  // Journals of earlier releases have none.
  if (node.find("skipped_steps")) out.skipped_steps = reader.list(node, "skipped_steps", count);
  out.losses = reader.list(node, "losses", [&problems](const Node& each) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    return each.is_null() ? none : each.number(problems).value_or(none);
  });
  if (const auto memory = reader.member(node, "peak_memory_bytes")) {
    reader.section(*memory,
                   {"total", "categories", "process", "host", "gpu", "communicators", "graphs"});
    constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
    out.peak_memory.total_bytes = reader.count(*memory, "total", any);
    out.peak_memory.category_bytes = reader.map(*memory, "categories", count);
    out.peak_memory.process_bytes = reader.count(*memory, "process", any);
    // Earlier releases knew one memory.
    if (memory->find("host")) out.peak_memory.host_bytes = reader.count(*memory, "host", any);
    // Only GPUs have these.
    if (memory->find("gpu")) out.peak_memory.gpu_bytes = reader.count(*memory, "gpu", any);
    if (memory->find("communicators"))
      out.peak_memory.communicator_bytes = reader.count(*memory, "communicators", any);
    if (memory->find("graphs")) out.peak_memory.graph_bytes = reader.count(*memory, "graphs", any);
  }
  if (const auto group = reader.member(node, "group")) {
    reader.section(*group, {"world_ranks", "hosts"});
    out.world_ranks = reader.list(*group, "world_ranks", [&problems](const Node& each) {
      return static_cast<int>(each.integer(problems, 0, largest_int).value_or(0));
    });
    out.hosts = reader.list(*group, "hosts", [&problems](const Node& each) {
      return each.string(problems).value_or("");
    });
  }
  if (node.find("rank_forward_s")) out.rank_forward_s = reader.list(node, "rank_forward_s", amount);
  if (const auto energy = node.find("energy_j")) out.energy_j = reader.amount(*energy);
  out.overhead_s = reader.map(node, "overhead_s", amount);
  if (const auto gpu = node.find("gpu")) {
    reader.section(
        *gpu, {"sm_clock_mhz", "max_sm_clock_mhz", "temperature_c", "power_w", "throttled_by"});
    out.gpu = GpuCondition{.sm_clock_mhz = reader.amount(*gpu, "sm_clock_mhz"),
                           .max_sm_clock_mhz = reader.amount(*gpu, "max_sm_clock_mhz"),
                           .temperature_c = reader.amount(*gpu, "temperature_c"),
                           .power_w = reader.amount(*gpu, "power_w"),
                           .throttled_by = reader.text(*gpu, "throttled_by")};
  }
  if (node.find("not_comparable")) out.not_comparable = reader.text(node, "not_comparable");
  problems.check();
  return out;
}

}  // namespace dstune
