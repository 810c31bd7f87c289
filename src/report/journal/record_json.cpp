#include "journal/record_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "dstune/base/units.hpp"

namespace dstune {

namespace {

/// Writes a member's value.
struct Writer {
  json::Value& out;
  template <class Member>
  void operator()(const char* name, const Member& member) const {
    if constexpr (std::is_enum_v<Member>)
      out[name] = to_text(member);
    else
      out[name] = member;
  }
};

/// Reads a member's value where there is one; keeps what it has where there is none.
struct Reader {
  const json::Node& node;
  json::Problems& problems;

  void operator()(const char* name, bool& member) const {
    if (const auto found = node.find(name)) member = found->boolean(problems).value_or(member);
  }
  void operator()(const char* name, std::int64_t& member) const {
    if (const auto found = node.find(name)) member = found->integer(problems).value_or(member);
  }
  void operator()(const char* name, int& member) const {
    using Limits = std::numeric_limits<int>;
    if (const auto found = node.find(name))
      member =
          static_cast<int>(found->integer(problems, Limits::min(), Limits::max()).value_or(member));
  }
  void operator()(const char* name, double& member) const {
    if (const auto found = node.find(name)) member = found->number(problems).value_or(member);
  }
  void operator()(const char* name, std::string& member) const {
    if (const auto found = node.find(name)) member = found->string(problems).value_or(member);
  }
  void operator()(const char* name, Precision& member) const {
    word(name, member, std::array{Precision::fp32, Precision::bf16, Precision::fp16});
  }
  void operator()(const char* name, Recompute& member) const {
    word(name, member, std::array{Recompute::none, Recompute::selective, Recompute::block});
  }
  void operator()(const char* name, OffloadDevice& member) const {
    word(name, member, std::array{OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme});
  }
  void operator()(const char* name, CommunicationType& member) const {
    using enum CommunicationType;
    word(name, member, std::array{as_gradients, fp32, fp16, bf16});
  }
  void operator()(const char* name, OptimizerKind& member) const {
    using enum OptimizerKind;
    word(name, member, std::array{adam, adamw, lion, sgd, adagrad});
  }
  void operator()(const char* name, RepeatKind& member) const {
    word(name, member, std::array{RepeatKind::spread, RepeatKind::final_round});
  }
  void operator()(const char* name, std::chrono::system_clock::time_point& member) const {
    const auto found = node.find(name);
    if (!found) return;
    const auto text = found->string(problems);
    if (!text) return;
    const auto time = parse_time(*text);
    if (time)
      member = *time;
    else
      problems.add(found->problem("expected a time in UTC such as 2026-01-02T03:04:05.678901Z"));
  }

 private:
  template <class Member, std::size_t count>
  void word(const char* name, Member& member, const std::array<Member, count>& choices) const {
    const auto found = node.find(name);
    if (!found) return;
    const auto text = found->string(problems);
    if (!text) return;
    for (const Member choice : choices) {
      if (to_text(choice) != *text) continue;
      member = choice;
      return;
    }
    problems.add(found->problem("\"" + *text + "\" is not known to this release"));
  }
};

Prediction prediction_from_json(const json::Node& node, json::Problems& problems) {
  const Reader read{node, problems};
  Prediction predicted;
  if (const auto throughput = node.find("throughput"); throughput && !throughput->is_null())
    predicted.throughput = throughput->number(problems);
  read("peak_memory_bytes", predicted.peak_memory_bytes);
  read("host_memory_bytes", predicted.host_memory_bytes);
  read("disk_bytes", predicted.disk_bytes);
  read("target_memory_bytes", predicted.target_memory_bytes);
  if (const auto process = node.find("process_memory_bytes"); process && !process->is_null())
    read("process_memory_bytes", predicted.process_memory_bytes);
  read("gpu_memory_bytes", predicted.gpu_memory_bytes);
  const auto read_categories = [&](const char* key, std::map<std::string, std::int64_t>& found) {
    const auto categories = node.find(key);
    if (!categories) return;
    for (const std::string& name : categories->keys())
      Reader{*categories, problems}(name.c_str(), found[name]);
  };
  read_categories("categories", predicted.categories);
  read_categories("host_categories", predicted.host_categories);
  return predicted;
}

/// Whatever a clock said or a failure left half done, the journal must be readable: an amount that
/// is negative or no number is 0.
Measurement readable(Measurement measurement) {
  const auto mend = [](double& amount) {
    if (!std::isfinite(amount) || amount < 0) amount = 0;
  };
  for (double& seconds : measurement.step_times_s) mend(seconds);
  for (auto& [phase, seconds] : measurement.overhead_s) mend(seconds);
  mend(measurement.forward_s);
  mend(measurement.backward_s);
  mend(measurement.update_s);
  mend(measurement.flops_per_step);
  measurement.warmup_steps =
      std::clamp(measurement.warmup_steps, 0, static_cast<int>(measurement.step_times_s.size()));
  return measurement;
}

}  // namespace

json::Value finite_or_null(double number) {
  return std::isfinite(number) ? json::Value(number) : json::Value();
}

json::Value to_json(const Prediction& predicted) {
  json::Value value = {
      {"throughput", predicted.throughput ? finite_or_null(*predicted.throughput) : nullptr},
      {"peak_memory_bytes", predicted.peak_memory_bytes},
      {"host_memory_bytes", predicted.host_memory_bytes},
      {"disk_bytes", predicted.disk_bytes},
      {"target_memory_bytes", predicted.target_memory_bytes},
      {"process_memory_bytes", predicted.process_memory_bytes > 0
                                   ? json::Value(predicted.process_memory_bytes)
                                   : json::Value()}};
  if (predicted.gpu_memory_bytes > 0) value["gpu_memory_bytes"] = predicted.gpu_memory_bytes;
  return value;
}

json::Value to_json(const Record& record) {
  const Experiment& experiment = record.experiment;
  json::Value config = json::Value::object();
  for_each_member(experiment.config, Writer{config});
  json::Value predicted = to_json(record.predicted);
  predicted["categories"] = record.predicted.categories;
  predicted["host_categories"] = record.predicted.host_categories;
  return {{"name", experiment.name},
          {"attempt", record.attempt},
          {"num_gpus", experiment.shape.num_gpus},
          {"num_nodes", experiment.shape.num_nodes},
          {"ds_config", experiment.ds_config},
          {"config", std::move(config)},
          {"predicted", std::move(predicted)},
          {"measurement", to_json(readable(record.measurement))},
          {"started_at", format_time(record.started_at)},
          {"finished_at", format_time(record.finished_at)},
          {"alone", record.is_alone}};
}

json::Value to_json(const Repeat& repeat) {
  return {{"purpose", to_text(repeat.kind)},
          {"round", repeat.round},
          {"measurement", to_json(readable(repeat.measurement))},
          {"started_at", format_time(repeat.started_at)},
          {"finished_at", format_time(repeat.finished_at)},
          {"alone", repeat.is_alone}};
}

Repeat repeat_from_json(const json::Node& node, json::Problems& problems) {
  const Reader read{node, problems};
  Repeat repeat;
  read("purpose", repeat.kind);
  read("round", repeat.round);
  if (const auto measurement = node.find("measurement"))
    repeat.measurement = measurement_from_json(*measurement);
  else
    problems.add(node.problem("\"measurement\" is missing"));
  read("started_at", repeat.started_at);
  read("finished_at", repeat.finished_at);
  read("alone", repeat.is_alone);
  return repeat;
}

Record record_from_json(const json::Node& node, json::Problems& problems) {
  const Reader read{node, problems};
  Record record;
  Experiment& experiment = record.experiment;
  read("name", experiment.name);
  read("attempt", record.attempt);
  read("num_gpus", experiment.shape.num_gpus);
  read("num_nodes", experiment.shape.num_nodes);
  if (const auto ds_config = node.find("ds_config")) experiment.ds_config = ds_config->value();
  if (const auto config = node.find("config"))
    for_each_member(experiment.config, Reader{*config, problems});
  if (const auto predicted = node.find("predicted"))
    record.predicted = prediction_from_json(*predicted, problems);
  if (const auto measurement = node.find("measurement"))
    record.measurement = measurement_from_json(*measurement);
  else
    problems.add(node.problem("\"measurement\" is missing"));
  read("started_at", record.started_at);
  read("finished_at", record.finished_at);
  read("alone", record.is_alone);
  return record;
}

}  // namespace dstune
