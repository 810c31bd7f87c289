#include <algorithm>
#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "start/early_end.hpp"
#include "start/preparation.hpp"
#include "target/target_measuring.hpp"

namespace dstune {
namespace {

using json::Value;

Value identity(const JobSpec& job, const WorkloadSpec& spec, const engine::Loaded& engine,
               const Experiment& experiment, const Value& fingerprint) {
  Value workload = {{"kind", static_cast<int>(spec.kind)},
                    {"step_time_s", spec.step_time_s},
                    {"time_scale", spec.time_scale},
                    {"table", spec.table}};
  if (spec.kind == WorkloadKind::plugin) {
    workload["options"] = spec.options;
    workload["library_hash"] = spec.library_hash;
  }
  if (spec.kind == WorkloadKind::deepspeed) {
    workload["options"] = spec.options;
    workload["options"].erase("python");
    workload["options"].erase("folder");
    workload["script_hash"] = engine.script_hash;
    workload["versions"] = engine.versions;
    workload["arguments"] = script_arguments(job, experiment);
    workload["model"] = spec.model_config;
  }
  Value config = experiment.ds_config;
  config.erase("autotuning");
  // Journals from before they were written out go on counting, …
  for (const std::string& pointer : experiment.written_out) {
    const Value::json_pointer place(pointer);
    config[place.parent_pointer()].erase(place.back());
  }
  Value target = {static_cast<int>(job.target.framework), static_cast<int>(job.target.attention)};
  // Journals from before there was a choice go on counting.
  if (job.target.checkpointing == TargetCheckpointing::deepspeed) target.push_back("deepspeed");
  Value all = {{"config", config},
               {"num_gpus", experiment.shape.num_gpus},
               {"num_nodes", experiment.shape.num_nodes},
               {"recompute", to_text(experiment.config.recompute)},
               {"model", to_json(job.model)},
               {"sequence_length", job.sequence_length},
               {"target", target},
               {"workload", workload},
               {"machine", fingerprint},
               {"measuring_version", measuring_version}};
  // It is the only thing that the configuration does not say.
  if (job.precision && has_automatic_precision(config)) all["precision"] = to_text(*job.precision);
  // … and their DeepSpeed was this one.
  if (job.deepspeed_version != release_of_old_journals)
    all["deepspeed"] = to_text(job.deepspeed_version);
  return all;
}

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

/// --retry-failed. Whether any is to run again. The journal keeps what they were.
bool retry_failed(Preparation& ready) {
  const std::size_t count =
      forget_failed(ready.history, ready.keys) + forget_failed(ready.history, ready.verify_keys);
  log::info(fmt::format("--retry-failed: {} experiments that failed before run again", count));
  return count > 0;
}

std::set<std::string> names_of(const PlannedSpace& space) {
  std::set<std::string> names;
  for (const PlannedMember& member : space.members)
    if (member.planned.status == PlanStatus::planned) names.insert(member.planned.experiment.name);
  return names;
}

/// The folders, for this job alone. Nothing in them is changed before.
void hold_results(Preparation& ready) {
  const TuningOptions& tuning = ready.job.tuning;
  ready.results =
      std::make_unique<ResultsFolder>(tuning.results_dir, tuning.exps_dir, ready.inputs);
  ready.lock = std::make_unique<FolderLock>(ready.results->path());
  // Once more, now that no other job can put anything there.
  [[maybe_unused]] const FolderNames same =
      choose_folders({.results_dir = tuning.results_dir, .exps_dir = tuning.exps_dir},
                     names_of(ready.space), ready.inputs, true);
  ready.results->begin();
  ready.results->forget_exit_status();
}

/// --profile-out: a file that is there is replaced only where it is a profile, or empty.
void check_profile_place(const std::string& path, const InputFiles& inputs,
                         std::initializer_list<std::string> folders) {
  std::error_code cause;
  const auto folder = std::filesystem::weakly_canonical(path, cause).parent_path();
  for (const std::string& ours : folders)
    if (folder == std::filesystem::weakly_canonical(ours, cause))
      throw InputError({{path, "", 0,
                         "it lies among this job's own files, and one of them may be replaced: "
                         "name a place outside of " +
                             ours}});
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(path, cause));
  if (!is_there) return;
  const std::string content = read_file(path);
  const Value found = Value::parse(content, nullptr, false);
  const bool is_profile = found.is_object() && found.contains("format") &&
                          found["format"] == "dstune-mpi device profile";
  if ((content.empty() || is_profile) && !inputs.contains(path)) return;
  throw InputError(
      {{path, "", 0,
        "it is not a device profile, and --profile-out would replace it: move it away, "
        "or name another file"}});
}

}  // namespace

void take_folders(Preparation& ready, const JobOptions& options) {
  TuningOptions& tuning = ready.job.tuning;
  ready.inputs = input_files(options, *ready.job.document);
  for (const auto& [stage, path] : ready.job.templates) ready.inputs.add(path);
  FolderNames asked = asked_folders(options);
  asked.results_dir = tuning.results_dir;
  asked.exps_dir = tuning.exps_dir;
  const FolderNames taken = choose_folders(asked, names_of(ready.space), ready.inputs);
  tuning.results_dir = taken.results_dir;
  tuning.exps_dir = taken.exps_dir;
  if (options.profile_path)
    check_profile_place(*options.profile_path, ready.inputs, {tuning.results_dir, tuning.exps_dir});
}

void open_results(Preparation& ready, const JobOptions& options, const Topology& topology,
                  const std::vector<RankDevice>& devices,
                  const std::function<void(const std::string&)>& on_held) {
  hold_results(ready);
  on_held(ready.results->exit_status_path());
  if (ready.job.tuning.overwrite) ready.results->delete_previous();
  std::string note;
  ready.choices = ready.results->library_choices(note);
  if (!note.empty()) log::warning(note);
  ready.results->prepare_journal();
  const JournalContent content = read_journal(ready.results->journal_path());
  ready.history = understand(content, ready.results->journal_path());
  ready.journal = std::make_unique<Journal>(ready.results->journal_path(), content.valid_bytes,
                                            [lock = ready.lock.get()] { lock->check(); });

  const Value& fingerprint = ready.fingerprint = machine_fingerprint(ready.allowed_ranks, devices);
  Value decided = Value::array();
  for (const PlannedMember& member : ready.space.members) {
    const auto key_of = [&](const WorkloadSpec& workload) {
      return record_key(
          identity(ready.job, workload, ready.engine, member.planned.experiment, fingerprint));
    };
    ready.keys.push_back(key_of(ready.job.workload));
    if (ready.job.verify) ready.verify_keys.push_back(key_of(*ready.job.verify));
    decided.push_back({ready.keys.back(), to_text(member.planned.status)});
  }

  // What was planned is written once, not again by every job that resumes it.
  const std::string plan_key = record_key(decided);
  const bool is_known_plan = std::ranges::any_of(content.events, [&](const auto& event) {
    return event.value.value("plan_key", "") == plan_key;
  });
  const TuningOptions& tuning = ready.job.tuning;
  Value searched = {plan_key,
                    tuning.tuner_type,
                    to_text(tuning.metric),
                    tuning.seed,
                    tuning.num_trials.value_or(-1),
                    tuning.early_stopping.value_or(-1)};
  // Other constants may have another order.
  if (ready.target) searched.push_back(ready.target->source);
  if (ready.target && ready.job.measures_target() && ready.space.planned > 0)
    searched.push_back(ready.target_key = key_of_target(ready));
  ready.screening_key = record_key(Value{searched, "step"});
  // A changed script has another answer.
  if (ready.job.verify) searched.push_back(ready.verify_keys);
  const std::string search_key = record_key(searched);
  // The others decide the same again from the same results.
  ready.is_search_complete = tuning.tuner_type == "race" &&
                             ready.history.complete_searches.contains(search_key) &&
                             ready.user_runs.empty();
  // A member that failed may win.
  if (options.overrides.retry_failed && retry_failed(ready)) ready.is_search_complete = false;
  ready.is_screening_complete =
      ready.is_search_complete || (tuning.tuner_type == "race" && ready.user_runs.empty() &&
                                   ready.history.complete_searches.contains(ready.screening_key));
  Value environment = environment_info(topology, devices, options.version, options.command_line);
  environment["machine_fingerprint"] = fingerprint;
  environment["policy"] = policy_json(*ready.job.tuning.policy);
  environment["deepspeed"] = {{"version", to_text(ready.job.deepspeed_version)},
                              {"source", ready.job.deepspeed_source}};
  environment["training_ranks"] = ready.training_ranks;
  environment["seeds"] = {{"tuner", ready.job.tuning.seed}, {"reference_step", reference_seed}};
  environment["device_memory_bytes"] = ready.device_memory_bytes;
  environment["host_memory_bytes"] = ready.host_memory_bytes;
  environment["energy"] = ready.energy;
  environment["input_hashes"] = {{"space", record_key(ready.job.document->root())},
                                 {"model", record_key(to_json(ready.job.model))}};
  if (ready.job.engine() != nullptr)
    environment["python"] = {{"versions", ready.engine.versions},
                             {"paths", ready.engine.paths},
                             {"script_hash", ready.engine.script_hash},
                             {"missing_operators", ready.engine.missing_operators},
                             {"resident_bytes", ready.engine.resident_bytes}};
  ready.journal->add(event::job_started({{"version", options.version},
                                         {"time", format_time(std::chrono::system_clock::now())},
                                         {"elapsed_s", seconds_since(options.began)},
                                         {"num_ranks", num_ranks(ready.training_ranks)},
                                         {"command", options.command_line},
                                         {"measuring_version", measuring_version},
                                         {"machine", fingerprint},
                                         {"plan_key", plan_key},
                                         {"search_key", search_key}}));
  if (!is_known_plan) {
    for (const PlannedMember& member : ready.space.members)
      if (member.planned.status != PlanStatus::planned)
        ready.journal->add(event::planned(member.planned));
  }
  for (const Import& import : ready.imports) {
    const std::string& key = ready.keys[import.index];
    ready.journal->add(event::verified(key,
                                       ready.space.members[import.index].planned.experiment.name,
                                       import.path, import.measurement));
    ready.history.verified[key] = import.measurement;
  }
  ready.journal->commit();
  ready.results->write_environment(environment);
}

ExitCode end_while_planning(Preparation& ready) {
  const std::string reason = "the time limit, while planning; the same command begins again";
  log::warning("stopping early: " + reason);
  create_early_exit_status(
      {.results_dir = ready.job.tuning.results_dir, .exps_dir = ready.job.tuning.exps_dir},
      ready.inputs, ExitCode::stopped_early, reason, true);
  return ExitCode::stopped_early;
}

}  // namespace dstune
