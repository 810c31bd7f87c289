#include "search_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/train/executor.hpp"

namespace dstune::bench {
namespace {

using json::Value;

std::string made_path(const std::string& table_path) {
  return std::filesystem::path(table_path).replace_extension(".made.json").string();
}

/// The whole space: what was recorded ran, so nothing of it is infeasible.
PlannedSpace plan_all(const JobSpec& job) {
  PlannerOptions options;
  options.host_memory_bytes = options.device_memory_bytes = std::int64_t{1} << 60;
  return plan_space(job, SearchSpace(job), CpuWorkspaces(kernels::cpu_table()), options);
}

JobSpec read_space(const std::string& path) {
  Overrides overrides;
  overrides.tuner_type = "gridsearch";
  return read_job(path, overrides, std::nullopt, 1);
}

/// To four digits.
double rounded(double value) {
  return std::stod(fmt::format("{:.4g}", value));
}

/// A step that is so much longer than most was interrupted by the machine.
constexpr double pause_s = 0.02;

/// Appends the timed steps of another run, and before the first one's the last of its warm-up.
void add_times(const Measurement& measurement, int warmup_steps, double longest_pause_s,
               Value& times) {
  const std::vector<double>& all = measurement.step_times_s;
  std::vector<double> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  const auto warmup = static_cast<std::size_t>(measurement.warmup_steps);
  const int kept = times.empty() ? warmup_steps : 0;
  for (auto step = static_cast<std::size_t>(std::max(0, measurement.warmup_steps - kept));
       step < all.size(); ++step) {
    if (step < warmup || all[step] < sorted[all.size() / 2] + longest_pause_s)
      times.push_back(rounded(all[step]));
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A run that took so many times as long as the middle one was disturbed.
constexpr double disturbed = 1.04;

/// The runs that count, in their order: all that did not end ok, else the undisturbed ones.
std::vector<Measurement> undisturbed(const std::vector<Measurement>& runs) {
  std::vector<double> means;
  for (const Measurement& run : runs) means.push_back(mean_step_s(run));
  const double middle = median(means);
  std::vector<Measurement> kept;
  for (std::size_t run = 0; run < runs.size(); ++run)
    if (means[run] <= disturbed * middle) kept.push_back(runs[run]);
  return kept;
}

/// The machine is faster at one time than at another: divides each search's times by its level, the
/// median over the members of what a run took against the geometric mean of the member's runs.
std::vector<double> take_out_levels(std::map<std::string, std::vector<Measurement>>& measured,
                                    std::size_t num_searches) {
  std::vector<std::vector<double>> ratios(num_searches);
  for (const auto& [name, runs] : measured) {
    double sum = 0;
    for (const Measurement& run : runs) sum += std::log(mean_step_s(run));
    if (!std::isfinite(sum)) continue;  // a run without a time
    const double middle_s = std::exp(sum / static_cast<double>(num_searches));
    for (std::size_t search = 0; search < num_searches; ++search)
      ratios[search].push_back(mean_step_s(runs[search]) / middle_s);
  }
  std::vector<double> levels;
  for (const std::vector<double>& of_search : ratios) levels.push_back(median(of_search));
  for (auto& [name, runs] : measured)
    for (std::size_t search = 0; search < num_searches; ++search)
      for (double& step_s : runs[search].step_times_s) step_s /= levels[search];
  return levels;
}

Value row_of(const std::vector<Measurement>& measurements, int warmup_steps,
             double longest_pause_s) {
  Value times = Value::array();
  Value row = {{"peak_memory_bytes", measurements.front().peak_memory.total_bytes}};
  for (const Measurement& measurement : measurements) {
    if (measurement.status != Status::ok) row["status"] = to_text(measurement.status);
    add_times(measurement, warmup_steps, longest_pause_s, times);
  }
  if (!times.empty()) row["step_times_s"] = std::move(times);
  return row;
}

Measurement measurement_of(const Value& row, int warmup_steps) {
  Measurement measurement;
  measurement.status = from_text<Status>(row.value("status", "ok")).value();
  measurement.step_times_s = row.value("step_times_s", std::vector<double>{});
  measurement.warmup_steps = warmup_steps;
  measurement.peak_memory.total_bytes = row.value("peak_memory_bytes", std::int64_t{0});
  return measurement;
}

/// What the members do not have in common: JSON pointers of the DeepSpeed config, and what it
/// lacks.
std::vector<Value> choices_of(const PlannedSpace& space) {
  std::vector<Value> flat;
  std::map<std::string, std::map<std::string, std::size_t>> counts;  // of each value of each key
  for (const PlannedMember& member : space.members) {
    const Experiment& experiment = member.planned.experiment;
    Value& one = flat.emplace_back(experiment.ds_config.flatten());
    one["num_gpus"] = experiment.shape.size();
    one["recompute"] = to_text(experiment.config.recompute);
    one.erase("/train_batch_size");  // follows from the others
    for (const auto& [key, value] : one.items()) ++counts[key][value.dump()];
  }
  std::vector<Value> choices(flat.size(), Value::object());
  for (const auto& [key, values] : counts) {
    if (values.begin()->second == flat.size()) continue;
    for (std::size_t member = 0; member < flat.size(); ++member)
      choices[member][key] = flat[member].contains(key) ? flat[member][key] : Value();
  }
  return choices;
}

/// A member on a line, those of `broken` likewise.
std::string text_of(const Value& object, const std::string& broken = "") {
  std::string text = "{";
  for (const auto& [key, value] : object.items())
    text += fmt::format("{}\n{}: {}", text.size() > 1 ? "," : "", Value(key).dump(),
                        key == broken ? text_of(value) : value.dump());
  return text + "\n}";
}

/// Of each member by name, what each of the searches measured. Throws where one lacks a member.
std::map<std::string, std::vector<Measurement>> results_of(const std::vector<std::string>& folders,
                                                           const PlannedSpace& space) {
  std::map<std::string, std::vector<Measurement>> measured;
  for (const std::string& folder : folders) {
    const std::string path = folder + "/journal.jsonl";
    for (const auto& [key, record] : understand(read_journal(path), path).finished)
      measured[record.experiment.name].push_back(record.measurement);
  }
  for (const PlannedMember& member : space.members) {
    const std::string& name = member.planned.experiment.name;
    if (member.planned.status == PlanStatus::planned && measured[name].size() != folders.size())
      throw Error("there is not one result of each search of " + name);
  }
  return measured;
}

/// Seconds a step of a member whose runs nothing disturbed.
double quiet_step_s(const std::vector<Measurement>& runs) {
  std::vector<double> means;
  for (const Measurement& run : runs) means.push_back(mean_step_s(run));
  return rounded(median(means));
}

}  // namespace

SearchTable read_table(const std::string& path, const PredictionsOf& predictions) {
  const json::Document rows = json::Document::read(path);
  const json::Document made = json::Document::read(made_path(path));
  const std::filesystem::path file(path);
  SearchTable table;
  table.name = file.stem().string();
  table.job = read_space((file.parent_path() / made.root().at("space")).string());
  table.space = plan_all(table.job);
  const auto profile = profile_for(made, predictions);
  if (profile) predict(table.job, *profile, table.space);
  const Value& members = made.root().at("members");
  table.measurements.resize(table.space.members.size());
  table.runs.resize(table.space.members.size());
  table.run_steps.resize(table.space.members.size());
  table.quiet_step_s.resize(table.space.members.size());
  table.recorded_predictions.resize(table.space.members.size());
  for (std::size_t index = 0; index < table.space.members.size(); ++index) {
    PlannedExperiment& planned = table.space.members[index].planned;
    if (planned.status != PlanStatus::planned) continue;
    const std::string& name = planned.experiment.name;
    if (!rows.root().contains(name)) throw Error(path + " has no member " + name);
    table.recorded_predictions[index] = members.at(name).at("predicted_throughput");
    if (!profile) planned.predicted.throughput = table.recorded_predictions[index];
    table.runs[index] = members.at(name).at("runs");
    table.run_steps[index] = members.at(name).value("run_steps", std::vector<std::size_t>{});
    table.quiet_step_s[index] = members.at(name).value("quiet_step_s", 0.0);
    table.measurements[index] =
        measurement_of(rows.root()[name], table.job.tuning.measure.start_profile_step);
  }
  return table;
}

std::vector<SearchTable> read_tables(const std::vector<std::string>& paths,
                                     const PredictionsOf& predictions) {
  std::vector<SearchTable> tables;
  for (const std::string& path : paths) {
    if (path.ends_with(".made.json")) continue;  // beside a table
    try {
      tables.push_back(read_table(path, predictions));
    } catch (const CanNotPredict& error) {
      std::fprintf(stderr, "%s is left out: %s\n", path.c_str(), error.what());
    }
  }
  if (tables.empty()) throw Error("there is no table to search");
  return tables;
}

double worth_of(const SearchTable& table, std::size_t member) {
  Measurement run = table.measurements[member];
  if (table.quiet_step_s[member] > 0)
    std::fill(run.step_times_s.begin(), run.step_times_s.end(), table.quiet_step_s[member]);
  const Experiment& experiment = table.space.members[member].planned.experiment;
  const int size = experiment.shape.size();
  const auto value =
      value_so_far(run, table.job.tuning.metric, global_batch(experiment.config, size), size);
  return value ? value->value : 0;
}

void record_table(const std::string& table_path, const std::string& space_path,
                  const std::string& profile_path, const std::string& words,
                  const std::vector<std::string>& results_dirs,
                  const std::vector<std::string>& quiet_dirs) {
  const JobSpec job = read_space(space_path);
  PlannedSpace space = plan_all(job);
  const json::Document profile = json::Document::read(profile_path);
  predict(job, device_profile_from_json(profile.node()), space);
  auto measured = results_of(results_dirs, space);
  const auto quiet = results_of(quiet_dirs, space);
  const bool is_disturbed = !quiet_dirs.empty();
  const std::vector<double> levels =
      is_disturbed ? std::vector<double>{} : take_out_levels(measured, results_dirs.size());
  Value rows = Value::object();
  Value members = Value::object();
  const std::vector<Value> choices = choices_of(space);
  for (std::size_t index = 0; index < space.members.size(); ++index) {
    const PlannedExperiment& planned = space.members[index].planned;
    if (planned.status != PlanStatus::planned) continue;
    const std::string& name = planned.experiment.name;
    const std::vector<Measurement> runs =
        is_disturbed ? measured[name] : undisturbed(measured[name]);
    rows[name] =
        row_of(runs, job.tuning.measure.start_profile_step, is_disturbed ? HUGE_VAL : pause_s);
    members[name] = {{"predicted_throughput", rounded(*planned.predicted.throughput)},
                     {"runs", runs.size()},
                     {"choices", choices[index]}};
    if (!is_disturbed) continue;
    for (const Measurement& run : runs)
      members[name]["run_steps"].push_back(timed_steps_s(run).size());
    members[name]["quiet_step_s"] = quiet_step_s(quiet.at(name));
  }
  const Value environment = json::Document::read(results_dirs.front() + "/environment.json").root();
  Value made = {{"space", std::filesystem::relative(space_path,
                                                    std::filesystem::path(table_path).parent_path())
                              .string()},
                {"made", words}};
  for (const char* key : {"version", "started_at", "mpi", "variables", "machine_fingerprint"})
    made[key] = environment.at(key);
  for (const double level : levels) made["levels"].push_back(rounded(level));
  made["ranks"] = environment.at("ranks").size();
  made["members"] = std::move(members);
  made["profile"] = profile.root();
  write_file_atomically(table_path, text_of(rows) + "\n");
  write_file_atomically(made_path(table_path), text_of(made, "members") + "\n");
}

}  // namespace dstune::bench
