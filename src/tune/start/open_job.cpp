#include "start/open_job.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/search/tuner.hpp"
#include "start/early_end.hpp"

namespace dstune {
namespace {

using json::Value;

/// Changes whenever the engines, or what is made of them, do.
constexpr int target_version = 1;

/// Returns the identity for which a record counts.
Value identity(const OpenJob& job, const Instrument& instrument, const Experiment& experiment) {
  const JobSpec& spec = job.job;
  Value config = experiment.ds_config;
  config.erase("autotuning");
  // Journals from before they were written out go on counting, …
  for (const std::string& pointer : experiment.written_out) {
    const Value::json_pointer place(pointer);
    config[place.parent_pointer()].erase(place.back());
  }
  Value target = {static_cast<int>(spec.target.framework), static_cast<int>(spec.target.attention)};
  // Journals from before there was a choice go on counting.
  if (spec.target.checkpointing == TargetCheckpointing::deepspeed) target.push_back("deepspeed");
  Value all = {{"config", config},
               {"num_gpus", experiment.shape.num_gpus},
               {"num_nodes", experiment.shape.num_nodes},
               {"recompute", to_text(experiment.config.recompute)},
               {"model", to_json(spec.model)},
               {"sequence_length", spec.sequence_length},
               {"target", target},
               {"workload", instrument.identity(spec, experiment)},
               {"machine", job.fingerprint},
               {"measuring_version", measuring_version}};
  // It is the only thing that the configuration does not say.
  if (spec.precision && has_automatic_precision(config))
    all["precision"] = to_text(*spec.precision);
  // … and their DeepSpeed was this one.
  if (spec.deepspeed_version != release_of_old_journals)
    all["deepspeed"] = to_text(spec.deepspeed_version);
  return all;
}

std::vector<std::string> keys_of(const OpenJob& job, const Instrument& instrument) {
  std::vector<std::string> keys;
  keys.reserve(job.space.members.size());
  for (const PlannedMember& member : std::as_const(job.space.members))
    keys.push_back(record_key(identity(job, instrument, member.planned.experiment)));
  return keys;
}

/// Returns a key of all that the measured constants of the target depend on.
std::string key_of_target(const OpenJob& ready) {
  const GroupShape shape = usual_shape(ready.space);
  return record_key(
      {{"target_version", target_version},
       {"machine", ready.fingerprint},
       {"num_gpus", shape.num_gpus},
       {"num_nodes", shape.num_nodes},
       {"deepspeed", to_text(ready.job.deepspeed_version)},
       {"versions", (*ready.instruments)[ready.place_of_engine()]->environment().at("versions")},
       {"beginning_with", json::write(*ready.target)}});
}

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

/// Does --retry-failed, and returns whether any is to run again. The journal keeps what they were.
bool retry_failed(OpenJob& job) {
  std::size_t count = forget_failed(job.history, job.keys);
  if (job.has_other_keys()) count += forget_failed(job.history, job.own_keys());
  log::info(fmt::format(log_text::retry_failed, count));
  return count > 0;
}

ExperimentsAmong experiments_of(const PlannedSpace& space) {
  return [&space](const std::set<std::string>& names) {
    std::set<std::string> found;
    visit_members_to_run(space, [&](const PlannedExperiment& member) {
      if (names.contains(member.experiment.name)) found.insert(member.experiment.name);
      return found.size() < names.size();
    });
    return found;
  };
}

/// The folders, for this job alone. Nothing in them is changed before.
void hold_results(OpenJob& job, const JobFolders& folders) {
  const auto& [names, inputs] = folders;
  job.results = std::make_unique<ResultsFolder>(names.results_dir, names.exps_dir, inputs);
  job.lock = std::make_unique<FolderLock>(job.results->path());
  // Once more, now that no other job can put anything there.
  [[maybe_unused]] const FolderNames same =
      choose_folders({.results_dir = names.results_dir, .exps_dir = names.exps_dir},
                     experiments_of(job.space), inputs, true);
  job.results->begin();
  job.results->forget_exit_status();
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

/// Takes in what earlier jobs have left. `content`: the journal's.
void understand_past(OpenJob& job, const JournalContent& content) {
  job.history = understand(content, job.results->journal_path());
  job.journal = std::make_unique<Journal>(job.results->journal_path(), content.valid_bytes,
                                          [lock = job.lock.get()] { lock->check(); });
}

void name_members(OpenJob& job) {
  const auto own = std::ranges::find_if(*job.instruments,
                                        [](const auto& one) { return one->traits().runs_plan; });
  job.keys = keys_of(job, job.deciding());
  if (own != job.instruments->end() && own->get() != &job.deciding())
    job.keys_of_own_step = keys_of(job, **own);
}

/// Warns where the folder has another job's results alone, as it may by mistake: the answer's files
/// are replaced all the same.
void warn_of_other_results(const OpenJob& job) {
  const auto& finished = job.history.finished;
  const auto is_known = [&](const std::string& key) { return finished.contains(key); };
  if (finished.empty() || std::ranges::any_of(job.keys, is_known) ||
      std::ranges::any_of(job.own_keys(), is_known))
    return;
  const std::string measured = format_count(finished.size(), "measured experiment");
  log::warning(fmt::format(log_text::other_results, job.results->path(), measured));
}

/// Returns a key of what was planned.
std::string plan_key(const OpenJob& job) {
  const std::vector<std::string>& keys = job.own_keys();
  ListKey key(keys.size());
  for (std::size_t index = 0; index < keys.size(); ++index)
    key.add({keys[index], to_text(job.space.status(index))});
  return key.text();
}

/// The search's name in the journal: the same one decides the same.
std::string search_key(OpenJob& job, const std::string& plan) {
  const TuningOptions& tuning = job.job.tuning;
  Value searched = {plan,
                    tuning.tuner_type,
                    to_text(tuning.metric),
                    tuning.seed,
                    tuning.num_trials.value_or(-1),
                    tuning.early_stopping.value_or(-1)};
  // Other constants may have another order.
  if (job.target) searched.push_back(job.target->source);
  if (!job.target_key.empty()) searched.push_back(job.target_key);
  // A changed script has another answer.
  if (job.has_other_keys()) searched.push_back(job.keys);
  return record_key(searched);
}

/// Another search has run these members, such as one by another metric. It raced by that one.
void note_other_searches(OpenJob& job, const std::string& search) {
  const std::string_view metric = to_text(job.job.tuning.metric);
  const bool has_forgotten = forget_other_races(job.history, job.keys, metric) > 0;
  if (has_forgotten && !job.is_search_complete)
    log::info(fmt::format(log_text::other_races, metric));
  for (std::size_t member = 0; member < job.keys.size(); ++member) {
    if (!job.history.finished.contains(job.keys[member])) continue;
    const auto found = job.history.measured_for.find(job.keys[member]);
    if (found != job.history.measured_for.end() && !found->second.search_key.empty() &&
        found->second.search_key != search)
      job.space.run_before.insert(member);
  }
}

/// Tells whether an earlier job has ended this search. Tuners that do not race decide the same
/// again from the same results.
bool has_ended_before(const OpenJob& job, const std::string& search) {
  return tuner_races(job.job.tuning) && job.history.complete_searches.contains(search) &&
         job.user_runs.empty();
}

Value environment_of(const OpenJob& job, const JobOptions& options, const OpenOptions& open) {
  Value environment =
      environment_info(open.topology, open.devices, options.version, options.command_line);
  environment["machine_fingerprint"] = job.fingerprint;
  environment["policy"] = policy_json(*job.job.tuning.policy);
  environment["deepspeed"] = {{"version", to_text(job.job.deepspeed_version)},
                              {"source", job.job.deepspeed_source}};
  environment["training_ranks"] = job.training_ranks;
  environment["seeds"] = {{"tuner", job.job.tuning.seed}, {"reference_step", reference_seed}};
  environment["device_memory_bytes"] = job.device_memory_bytes;
  environment["host_memory_bytes"] = *job.host_memory_bytes;
  environment["energy"] = open.energy;
  environment["placement"] = Value::array();
  for (const PlacementFinding& finding : open.placement)
    environment["placement"].push_back(finding.text);
  environment["input_hashes"] = {{"space", record_key(job.job.document->root())},
                                 {"model", record_key(to_json(job.job.model))}};
  for (const auto& instrument : *job.instruments)
    if (Value python = instrument->environment(); !python.is_null())
      environment["python"] = std::move(python);
  return environment;
}

/// Writes the plan once, not again for every job that resumes it.
void journal_plan(OpenJob& job, const JournalContent& content, const std::string& plan) {
  const bool is_known = std::ranges::any_of(
      content.events, [&](const auto& event) { return event.value.value("plan_key", "") == plan; });
  if (is_known) return;
  MembersLeftOut left_out;
  auto member = std::as_const(job.space.members).begin();
  for (std::size_t index = 0; index < job.space.members.size(); ++index, ++member)
    if (job.space.status(index) != PlanStatus::planned) left_out.add(member->planned);
  if (!left_out.empty()) job.journal->add(left_out.event());
}

void journal_imports(OpenJob& job) {
  for (const Import& import : job.imports) {
    const std::string& key = job.own_keys()[import.index];
    job.journal->add(event::verified(key, job.space.members[import.index].planned.experiment.name,
                                     import.path, import.measurement));
    job.history.verified[key] = import.measurement;
  }
}

}  // namespace

GroupShape usual_shape(const PlannedSpace& space) {
  const std::map<GroupShape, int> counts = shapes_to_run(space);
  require(!counts.empty(), "something is planned");
  return std::ranges::max_element(
             counts, {}, [](const auto& one) { return std::pair(one.second, one.first.size()); })
      ->first;
}

JobFolders choose_job_folders(const PlannedJob& planned, const JobOptions& options) {
  JobFolders folders;
  folders.inputs = input_files(options, *planned.job.document);
  for (const auto& [stage, path] : planned.job.templates) folders.inputs.add(path);
  FolderNames asked = asked_folders(options);
  asked.results_dir = planned.job.tuning.results_dir;
  asked.exps_dir = planned.job.tuning.exps_dir;
  folders.names = choose_folders(asked, experiments_of(planned.space), folders.inputs);
  if (options.profile_path)
    check_profile_place(*options.profile_path, folders.inputs,
                        {folders.names.results_dir, folders.names.exps_dir});
  return folders;
}

void open_results(OpenJob& job, const JobFolders& folders, const JobOptions& options,
                  const OpenOptions& open) {
  hold_results(job, folders);
  open.on_held(job.results->exit_status_path());
  if (job.job.tuning.overwrite) job.results->delete_previous();
  std::string note;
  job.choices = job.results->library_choices(note);
  if (!note.empty()) log::warning(note);
  job.results->prepare_journal();
  const JournalContent content = read_journal(job.results->journal_path());
  understand_past(job, content);
  job.fingerprint = machine_fingerprint(job.allowed_ranks, open.devices);
  name_members(job);
  warn_of_other_results(job);
  if (job.target && job.job.measures_target() && job.space.planned > 0)
    job.target_key = key_of_target(job);
  const std::string plan = plan_key(job);
  const std::string search = search_key(job, plan);
  job.is_search_complete = has_ended_before(job, search);
  note_other_searches(job, search);
  // A member that failed may win.
  if (options.overrides.retry_failed && retry_failed(job)) job.is_search_complete = false;
  job.journal->add(event::job_started({{"version", options.version},
                                       {"time", format_time(std::chrono::system_clock::now())},
                                       {"elapsed_s", seconds_since(options.began)},
                                       {"num_ranks", num_ranks(job.training_ranks)},
                                       {"command", options.command_line},
                                       {"measuring_version", measuring_version},
                                       {"machine", job.fingerprint},
                                       {"plan_key", plan},
                                       {"search_key", search},
                                       {"metric", to_text(job.job.tuning.metric)}}));
  journal_plan(job, content, plan);
  if (!job.space.members.empty())
    job.journal->begin_records(job.space.members.front().planned, job.history.base);
  journal_imports(job);
  job.journal->commit();
  job.results->write_environment(environment_of(job, options, open));
}

ExitCode end_while_planning(const JobFolders& folders) {
  const std::string reason = "the time limit, while planning; the same command begins again";
  log::warning(fmt::format(log_text::stopping_early, reason));
  create_early_exit_status(
      {.results_dir = folders.names.results_dir, .exps_dir = folders.names.exps_dir},
      folders.inputs, ExitCode::stopped_early, reason, true);
  return ExitCode::stopped_early;
}

}  // namespace dstune
