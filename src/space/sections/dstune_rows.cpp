#include <filesystem>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

using Readings = std::vector<Reading>;

const std::string& text_of(const Readings& readings) {
  return std::get<std::string>(readings.front().value);
}
void keep_model(SectionTarget& target, const Readings& readings) {
  target.model = readings.front().node;
}
void keep_sequence_length(SectionTarget& target, const Readings& readings) {
  target.sequence_length = readings.front();
}
void set_deepspeed_version(SectionTarget& target, const Readings& readings) {
  const auto version = parse_version(text_of(readings));
  if (!version) {
    target.problems->add(readings.front().node.problem("expected a version such as \"0.19.8\""));
  } else if (target.job->deepspeed_source.empty()) {  // the command line comes first
    target.job->deepspeed_version = *version;
    target.job->deepspeed_source = "dstune.deepspeed_version";
  }
}
void set_torch(SectionTarget& target, const Readings& readings) {
  if (const auto version = parse_version(text_of(readings)))
    target.job->target.torch = torch_number(*version);
  else
    target.problems->add(readings.front().node.problem("expected a version such as \"2.4\""));
}
/// A text of several lines.
template <auto member>
void set_trainable(SectionTarget& target, const Readings& readings) {
  std::optional<Trainable>& trainable = target.job->target.trainable;
  if (!trainable) trainable.emplace();
  if constexpr (std::is_same_v<decltype(member), std::int64_t Trainable::*>)
    assign((*trainable).*member, readings.front().value);
  else
    for (const std::string_view line : lines_of(text_of(readings)))
      ((*trainable).*member).emplace_back(line);
}
void set_training_command(SectionTarget& target, const Readings& readings) {
  target.job->training_command.emplace();
  target.job->training_command->text = text_of(readings);
}
void set_global_batch(SectionTarget& target, const Readings& readings) {
  target.job->keeps_global_batch = text_of(readings) == "keep";
}
void keep_gpus(SectionTarget& target, const Readings& readings) {
  target.num_gpus = readings;
}
void keep_nodes(SectionTarget& target, const Readings& readings) {
  target.num_nodes = readings;
}

void set_recompute(SectionTarget& target, const Readings& readings) {
  target.job->recompute.clear();
  for (const Reading& reading : readings)
    target.job->recompute.push_back(
        from_text<Recompute>(std::get<std::string>(reading.value)).value());
}

/// An integer, or a text.
template <auto... path>
void set_memory(SectionTarget& target, const Readings& readings) {
  if (std::holds_alternative<std::int64_t>(readings.front().value))
    return set<path...>(target, readings);
  const auto bytes = parse_bytes(text_of(readings));
  if (bytes && *bytes > 0) {
    member_of<path...>(*target.job) = *bytes;
  } else {
    target.problems->add(readings.front().node.problem(fmt::format(
        "expected an amount of memory such as \"64GiB\", got \"{}\"", text_of(readings))));
  }
}

/// The job's only instrument, as long as nobody has decided on others.
template <auto member>
void set_workload(SectionTarget& target, const Readings& readings) {
  assign(target.job->instruments.front().*member, readings.front().value);
}

/// Every member of the object is the plug-in's to read. The rows keep members that Python reads.
void keep_plugin_options(SectionTarget& target, const Readings& readings) {
  if (target.job->instruments.front().kind == WorkloadKind::plugin)
    target.job->instruments.front().options = readings.front().node.value();
}
/// The object that the node is a member of: the workload, or an engine beside it.
WorkloadSpec& engine_of(SectionTarget& target, const json::Node& node) {
  const bool measures = node.pointer().starts_with("/dstune/target");
  if (!measures && !node.pointer().starts_with("/dstune/verify"))
    return target.job->instruments.front();
  std::optional<WorkloadSpec>& beside = measures ? target.measuring : target.verify;
  return beside ? *beside : beside.emplace();
}
void keep_engine_option(SectionTarget& target, const Readings& readings) {
  const json::Node& node = readings.front().node;
  engine_of(target, node).options[std::string(last_key(node.pointer()))] = node.value();
}
void begin_verify(SectionTarget& target, const Readings& readings) {
  engine_of(target, readings.front().node).kind = WorkloadKind::deepspeed;
}
/// The user's script, by a path that holds wherever Python works.
void set_script(SectionTarget& target, const Readings& readings) {
  const std::string path =
      std::filesystem::absolute(path_from(target.job->folder, text_of(readings)))
          .lexically_normal();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    target.problems->add(readings.front().node.problem(
        fmt::format("the script {} does not exist: name a file that does", path)));
  engine_of(target, readings.front().node).options["script"] = path;
}
/// The library of a plug-in: its file is looked at, and nothing of it runs.
void set_library(SectionTarget& target, const Readings& readings) {
  WorkloadSpec& workload = target.job->instruments.front();
  // A slash is in it, so that the loader searches nowhere else.
  workload.library_path =
      std::filesystem::absolute(path_from(target.job->folder, text_of(readings)))
          .lexically_normal();
  try {
    check_plugin_library(workload.library_path);
  } catch (const Error& error) {
    target.problems->add(readings.front().node.problem(error.what()));
  }
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

/// The file of a replay, checked row by row.
void set_table(SectionTarget& target, const Readings& readings) {
  WorkloadSpec& workload = target.job->instruments.front();
  workload.table_path = path_from(target.job->folder, text_of(readings));
  try {
    const auto document = json::Document::read(workload.table_path, json::no_limits);
    const auto table = document.node();
    if (!table.expect_object(*target.problems)) return;
    for (const auto& name : table.keys()) check_row(*table.find(name), *target.problems);
    workload.table = document.root();
  } catch (const InputError& error) {
    add_all(error, *target.problems);
  }
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

void find_templates(SectionTarget& target, const Readings& readings) {
  const std::string folder = path_from(target.job->folder, text_of(readings));
  for (int stage = 0; stage < 4; ++stage) {
    const std::string path = path_from(folder, fmt::format("template_zero{}.json", stage));
    if (is_file(path)) target.job->templates[stage] = path;
  }
  if (target.job->templates.empty())
    target.problems->add(readings.front().node.problem(fmt::format(
        "{} holds no template_zero0.json to template_zero3.json: name a folder that does",
        folder)));
}

void set_template(SectionTarget& target, const Readings& readings) {
  const json::Node& node = readings.front().node;
  const std::string path = path_from(target.job->folder, text_of(readings));
  const int stage = node.pointer().back() - '0';
  if (is_file(path)) {
    target.job->templates[stage] = path;
  } else {
    target.problems->add(
        node.problem(fmt::format("the template {} does not exist: name a file that does", path)));
  }
}

}  // namespace

std::span<const SectionRow> dstune_rows() {
  using Workload = WorkloadSpec;
  using Target = TargetSpec;
  using Choice = MachineChoice;
  static const std::vector<SectionRow> all = section_rows(
      "dstune",
      {{"/dstune/model", keep_model},
       {"/dstune/model/", keep_model},
       {"/dstune/sequence_length", keep_sequence_length},
       {"/dstune/deepspeed_version", set_deepspeed_version},
       {"/dstune/precision", set<&JobSpec::precision>},
       {"/dstune/resources/num_gpus", keep_gpus},
       {"/dstune/resources/num_nodes", keep_nodes},
       {"/dstune/activation_recompute", set_recompute},
       {"/dstune/device_memory", set_memory<&JobSpec::device_memory_bytes>},
       {"/dstune/host_memory", set_memory<&JobSpec::host_memory_bytes>},
       {"/dstune/device", set<&JobSpec::machine_choice, &Choice::device>},
       {"/dstune/device/name", set<&JobSpec::machine_choice, &Choice::device>},
       {"/dstune/device/gpus_per_node", set<&JobSpec::machine_choice, &Choice::gpus_per_node>},
       {"/dstune/device/nodes", set<&JobSpec::machine_choice, &Choice::num_nodes>},
       {"/dstune/device/network", set<&JobSpec::machine_choice, &Choice::network>},
       {"/dstune/device/host_memory",
        set_memory<&JobSpec::machine_choice, &Choice::host_memory_bytes>},
       {"/dstune/device/profile", set<&JobSpec::machine_choice, &Choice::profile>},
       {"/dstune/trainable/rank", set_trainable<&Trainable::rank>},
       {"/dstune/trainable/targets", set_trainable<&Trainable::targets>},
       {"/dstune/trainable/names", set_trainable<&Trainable::names>},
       {"/dstune/target", set<&JobSpec::target, &Target::framework>},
       {"/dstune/target/framework", set<&JobSpec::target, &Target::framework>},
       {"/dstune/target/attention", set<&JobSpec::target, &Target::attention>},
       {"/dstune/target/optimizer", set<&JobSpec::target, &Target::optimizer>},
       {"/dstune/target/loss", set<&JobSpec::target, &Target::loss>},
       {"/dstune/target/fp32_logits", set<&JobSpec::target, &Target::fp32_logits>},
       {"/dstune/target/keeps_output", set<&JobSpec::target, &Target::keeps_output>},
       {"/dstune/target/zero_init", set<&JobSpec::target, &Target::zero_init>},
       {"/dstune/target/expandable_segments", set<&JobSpec::target, &Target::expandable_segments>},
       {"/dstune/target/torch", set_torch},
       {"/dstune/target/checkpointing", set<&JobSpec::target, &Target::checkpointing>},
       {"/dstune/target/measure", set<&JobSpec::target, &Target::measure>},
       {"/dstune/target/python", keep_engine_option},
       {"/dstune/trial_budget_s",
        set<&JobSpec::tuning, &TuningOptions::measure, &MeasureOptions::trial_budget_s>},
       {"/dstune/training_command", set_training_command},
       {"/dstune/global_batch", set_global_batch},
       {"/dstune/allow_unknown", set<&JobSpec::allows_unknown>},
       {"/dstune/templates", find_templates},
       {"/dstune/templates/0", set_template},
       {"/dstune/templates/1", set_template},
       {"/dstune/templates/2", set_template},
       {"/dstune/templates/3", set_template},
       {"/dstune/workload", set_workload<&Workload::kind>},
       {"/dstune/workload/", keep_plugin_options},
       {"/dstune/workload/type", set_workload<&Workload::kind>},
       {"/dstune/workload/step_time_s", set_workload<&Workload::step_time_s>},
       {"/dstune/workload/table", set_table},
       {"/dstune/workload/time_scale", set_workload<&Workload::time_scale>},
       {"/dstune/workload/library", set_library},
       {"/dstune/workload/script", set_script},
       {"/dstune/workload/args", keep_engine_option},
       {"/dstune/workload/function", keep_engine_option},
       {"/dstune/workload/python", keep_engine_option},
       {"/dstune/workload/scratch", keep_engine_option},
       {"/dstune/verify/", begin_verify},
       {"/dstune/verify/script", set_script},
       {"/dstune/verify/args", keep_engine_option},
       {"/dstune/verify/function", keep_engine_option},
       {"/dstune/verify/python", keep_engine_option},
       {"/dstune/verify/scratch", keep_engine_option}});
  return all;
}

}  // namespace dstune
