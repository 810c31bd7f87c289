#include "dstune/space/job_spec.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "check/document_findings.hpp"
#include "dstune/base/text.hpp"
#include "dstune/model/module_names.hpp"
#include "dstune/space/config_document.hpp"
#include "sections/assumptions.hpp"
#include "sections/command_values.hpp"
#include "sections/model.hpp"
#include "sections/planned_machine.hpp"
#include "sections/release.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

constexpr std::int64_t default_sequence_length = 1024;
/// The first release in which memory_efficient_linear acts on models that were built before.
constexpr Version release_that_wraps_built_models{0, 19, 4};

void apply(const Overrides& overrides, TuningOptions& tuning) {
  if (overrides.tuner_type) tuning.tuner_type = *overrides.tuner_type;
  if (overrides.full) tuning.fast = false;
  if (overrides.metric) tuning.metric = *overrides.metric;
  if (overrides.num_trials) tuning.num_trials = *overrides.num_trials;
  if (overrides.early_stopping) tuning.early_stopping = *overrides.early_stopping;
  if (overrides.seed) tuning.seed = *overrides.seed;
  if (overrides.results_dir) tuning.results_dir = *overrides.results_dir;
  if (overrides.exps_dir) tuning.exps_dir = *overrides.exps_dir;
  if (overrides.overwrite) tuning.overwrite = true;
}

// The meaning of values: groups of ranks, models.

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

/// The ranks of a training whose machine is not known: those that its file starts, else a node's.
Machine usual_machine(const std::optional<GroupShape>& started, int default_ranks) {
  const GroupShape shape = started.value_or(GroupShape{default_ranks, 1});
  return {std::vector<int>(static_cast<std::size_t>(shape.num_nodes), shape.num_gpus)};
}

/// The group shapes of `resources`, or every rank of the machine, which is `usual` where the job
/// has none.
void decide_shapes(const json::Node* resources, const Machine& usual, SectionTarget& target) {
  JobSpec& job = *target.job;
  const Machine& all = job.machine ? *job.machine : usual;
  const int ranks_a_node = *std::min_element(all.ranks_of_node.begin(), all.ranks_of_node.end());
  const int every_node = target.num_gpus.empty() ? static_cast<int>(all.ranks_of_node.size()) : 1;
  const auto gpus = counts_of(target.num_gpus, ranks_a_node);
  const auto nodes = counts_of(target.num_nodes, every_node);

  const auto add = [&](const Count& num_gpus, const Count& num_nodes) {
    const GroupShape shape{num_gpus.value, num_nodes.value};
    job.shapes.push_back(shape);
    if (!job.machine || job.machine->holds(shape)) return;
    const bool lacks_nodes =
        job.machine->ranks_of_node.size() < static_cast<std::size_t>(shape.num_nodes);
    const auto& place =
        !num_gpus.node || (lacks_nodes && num_nodes.node) ? num_nodes.node : num_gpus.node;
    target.problems->add(place->problem(job.machine->refusal(shape)));
  };
  // The last key varies fastest, as everywhere in the document.
  const auto keys = resources != nullptr ? resources->keys() : std::vector<std::string>{};
  const bool nodes_first = !keys.empty() && keys.front() == "num_nodes";
  for (const auto& outer : nodes_first ? nodes : gpus) {
    for (const auto& inner : nodes_first ? gpus : nodes)
      nodes_first ? add(inner, outer) : add(outer, inner);
  }
  const int used = job.shapes.empty() ? 0 : job.shapes.front().size();
  if (resources == nullptr && job.machine && used < job.machine->num_ranks()) {
    job.warnings.push_back(fmt::format(
        "the nodes have different numbers of ranks: groups take {} on each, {} of {} ranks",
        ranks_a_node, used, job.machine->num_ranks()));
  }
}

void decide_sequence_length(SectionTarget& target) {
  JobSpec& job = *target.job;
  const auto positions = job.model.max_positions;
  job.sequence_length =
      positions > 0 ? std::min(positions, default_sequence_length) : default_sequence_length;
  if (!target.sequence_length) {
    // Scripts cut theirs to what the model has.
    const auto said = job.command.sequence_length;
    if (said) job.sequence_length = positions > 0 ? std::min(positions, *said) : *said;
    if (said && job.sequence_length < *said)
      job.from_command.push_back(
          fmt::format("A sample has {} tokens, as the model has positions, not {}",
                      job.sequence_length, *said));
    return;
  }
  const json::Node& written = target.sequence_length->node;
  job.sequence_length = std::get<std::int64_t>(target.sequence_length->value);
  if (positions > 0 && job.sequence_length > positions)
    target.problems->add(
        written.problem(fmt::format("the model has {} positions: write at most as many, not {}",
                                    positions, job.sequence_length)));
}

/// DeepSpeed's engine as the one that decides, as the command line has it.
void decide_verify(const Overrides& overrides, SectionTarget& target) {
  JobSpec& job = *target.job;
  if (overrides.verify && !target.verify) {
    target.verify.emplace();
    job.verify_option =
        overrides.verify_script ? "--verify=" + *overrides.verify_script : "--verify";
  }
  if (!target.verify) return;
  target.verify->kind = WorkloadKind::deepspeed;
  if (target.verify->options.is_null()) target.verify->options = json::Value::object();
  if (overrides.verify_script) {
    // Seen from where the command is given.
    const auto path = std::filesystem::absolute(*overrides.verify_script).lexically_normal();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored))
      target.problems->add(
          {"--verify=" + *overrides.verify_script, "", 0,
           fmt::format("the script {} does not exist: name a file that does", path.string())});
    target.verify->options["script"] = path.string();
  }
  const std::string pointer = "/dstune/verify";
  if (!job.has_own_step())
    target.problems->add(
        {job.verify_option.empty() ? job.document->file() : job.verify_option,
         job.verify_option.empty() ? pointer : "",
         job.verify_option.empty() ? job.document->line(pointer) : 0,
         "verify runs finalists of the workload transformer in DeepSpeed's engine: leave it out, "
         "or the other workload"});
}

/// Decides whether the costs of the target's time are measured, and by which engine.
void decide_measuring(const json::Node& root, SectionTarget& target) {
  JobSpec& job = *target.job;
  const bool can_measure = job.has_own_step() && job.target.framework != TargetFramework::self;
  const auto problem = [&](const char* message) {
    const auto section = root.find("dstune");
    const auto place = section ? section->find("target") : std::nullopt;
    target.problems->add(place.value_or(root).problem(message));
  };
  if (job.target.measure == true && !can_measure)
    problem(
        "measure is for the workload transformer and a target other than \"self\": leave it out, "
        "or change that");
  job.target.measure = can_measure && job.target.measure.value_or(target.verify.has_value());
  if (target.measuring && target.verify)
    problem("the engine of verify measures, in its own python: leave python out here");
  else if (target.measuring && !job.measures_target())
    problem("python is for measure: add \"measure\": true, or leave it out");
  if (!job.measures_target() || target.verify) {
    target.measuring.reset();
    return;
  }
  if (!target.measuring) target.measuring.emplace();
  target.measuring->kind = WorkloadKind::deepspeed;
  if (target.measuring->options.is_null()) target.measuring->options = json::Value::object();
}

/// Checks that DeepSpeed's engine has something to train.
void check_engine(SectionTarget& target) {
  const WorkloadSpec* const engine = target.job->engine();
  if (engine == nullptr || !target.job->is_by_engine()) return;
  const bool is_beside = target.job->has_own_step();
  const char* const name = is_beside ? "verify" : "workload";
  const bool has_script =
      engine->options.contains("script") || target.job->training_command.has_value();
  if (engine->options.contains("function") && !has_script) {
    target.problems->add(engine_problem(
        *target.job, fmt::format("{}.function is a function of a script: add script", name)));
  } else if (!has_script && engine->model_config.empty()) {
    target.problems->add(engine_problem(
        *target.job,
        fmt::format("{} has nothing to train: add its script, or training_command, or name the "
                    "file of a Hugging Face config.json as model for random tokens",
                    is_beside ? "verify" : "the workload deepspeed")));
  }
}

/// Throws InputError with all problems that were found so far.
void expand_and_warn(JobSpec& job, json::Problems& problems) {
  check_automatic_precision(job, json::Node(*job.document, job.ds_config, ""), problems);
  ConfigFindings findings;
  for (const Problem& problem : problems.all()) findings.add(FindingKind::refused, problem);
  const auto products = expand(job, findings);
  add_key_findings(job, products, findings);
  if (!job.takes_any_key()) add_cautions(job, findings);
  findings.drop_consequences();
  problems = problems_in(job, findings);
  problems.check();
  std::ranges::move(warnings_in(job, findings), std::back_inserter(job.warnings));
}

}  // namespace

const WorkloadSpec* JobSpec::engine() const {
  const auto found = std::ranges::find(instruments, WorkloadKind::deepspeed, &WorkloadSpec::kind);
  return found == instruments.end() ? nullptr : &*found;
}

WorkloadSpec* JobSpec::engine() {
  return const_cast<WorkloadSpec*>(std::as_const(*this).engine());
}

bool JobSpec::is_by_engine() const {
  return instruments.back().kind == WorkloadKind::deepspeed;
}

bool JobSpec::has_own_step() const {
  return std::ranges::find(instruments, WorkloadKind::transformer, &WorkloadSpec::kind) !=
         instruments.end();
}

bool JobSpec::takes_any_key() const {
  return std::ranges::all_of(instruments, &WorkloadSpec::takes_any_key);
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

namespace {

/// "1 rank", "4 + 2 ranks", "4 to 8 ranks a node, 80 in all"
std::string ranks_text(const std::vector<int>& ranks_of_node, int total) {
  constexpr std::size_t most_shown = 8;
  const auto [least, most] = std::ranges::minmax(ranks_of_node);
  if (ranks_of_node.size() == 1) return format_count(static_cast<std::uint64_t>(total), "rank");
  if (ranks_of_node.size() <= most_shown)
    return fmt::format("{} ranks", fmt::join(ranks_of_node, " + "));
  return least == most ? fmt::format("{} ranks a node, {} in all", least, total)
                       : fmt::format("{} to {} ranks a node, {} in all", least, most, total);
}

std::string nodes_text(std::size_t nodes) {
  return nodes == 1 ? "one node" : fmt::format("{} nodes", nodes);
}

}  // namespace

std::string Machine::refusal(const GroupShape& shape) const {
  const auto nodes = static_cast<int>(ranks_of_node.size());
  const int most = std::ranges::max(ranks_of_node);
  const std::string ranks = ranks_text(ranks_of_node, num_ranks());
  const std::string asked =
      fmt::format("groups of {} on each of {} are asked for",
                  format_count(static_cast<std::uint64_t>(shape.num_gpus), "rank"),
                  format_count(static_cast<std::uint64_t>(shape.num_nodes), "node"));
  if (limit == Limit::filter)
    return fmt::format(
        "{}, but --hostfile, --include and --exclude leave {} on {}: name more hosts or slots, or "
        "take smaller groups",
        asked, ranks, nodes_text(ranks_of_node.size()));
  if (limit == Limit::plan)
    return fmt::format(
        "{}, but the plan is for {} on {}: raise --gpus-per-node or --nodes, or take smaller "
        "groups",
        asked, ranks, nodes_text(ranks_of_node.size()));
  const bool has_coordinator = limit == Limit::coordinator;
  const char* const beside = has_coordinator ? " beside rank 0, which only coordinates" : "";
  const int a_node = shape.num_gpus + (has_coordinator ? 1 : 0);
  if (nodes < shape.num_nodes)
    return fmt::format(
        "{0}, but the job has {1} ({2}{3}): ask for {4} nodes with {5} on each (Slurm --nodes={4} "
        "--ntasks-per-node={6}, PBS select={4}:mpiprocs={6}, mpirun --hostfile), or {7}",
        asked, nodes_text(ranks_of_node.size()), ranks, beside, shape.num_nodes,
        format_count(static_cast<std::uint64_t>(a_node), "rank"), a_node,
        most < shape.num_gpus ? "take smaller groups" : fmt::format("write num_nodes {}", nodes));
  if (most < shape.num_gpus)
    return fmt::format(
        "{0}, but no node of the job has more than {1} ({2} on {3}{4}): start {5} on {6} (mpirun "
        "-np {7} --map-by ppr:{5}:node, srun --ntasks-per-node={5}), or write num_gpus {1}",
        asked, most, ranks, nodes_text(ranks_of_node.size()), beside, a_node,
        nodes == 1 ? "it" : "each", a_node * nodes);
  return fmt::format(
      "{0}, but the job has {1} on its nodes{2}: place {3} on each (mpirun --map-by ppr:{3}:node, "
      "srun --ntasks-per-node={3}), or take smaller groups",
      asked, ranks, beside, a_node);
}

Problem engine_problem(const JobSpec& job, const std::string& message) {
  if (!job.verify_option.empty()) return {job.verify_option, "", 0, message};
  const std::string pointer = !job.has_own_step()  ? "/dstune/workload"
                              : job.is_by_engine() ? "/dstune/verify"
                                                   : "/dstune/target";
  return job.document->problem(pointer, message);
}

void complete_config(const JobSpec& job, Recompute recompute, TrainingConfig& config) {
  const bool reads_section = job.target.framework == TargetFramework::self ||
                             job.target.checkpointing == TargetCheckpointing::deepspeed;
  config.sequence_length = job.sequence_length;
  config.recompute = recompute;
  // Only zero.Init changed PyTorch's linear before (partition_parameters.py, Init).
  if (!job.target.zero_init && job.deepspeed_version < release_that_wraps_built_models)
    config.memory_efficient_linear = false;
  // Its blocks multiply by `weight.T` without PyTorch's linear (FalconLinear).
  if (job.model.family == ModelFamily::falcon) config.memory_efficient_linear = false;
  const bool acts = reads_section && recompute == Recompute::block;
  config.cpu_checkpointing = config.cpu_checkpointing && acts;
  config.synchronize_checkpoint_boundary = config.synchronize_checkpoint_boundary && acts;
  // Members are twins where a model has none of what they name.
  if (selected_modules(job.model, config.leaf_modules).empty()) config.leaf_modules = {};
}

std::string deepspeed_text(const JobSpec& job) {
  return fmt::format("Planned for DeepSpeed {} ({})", to_text(job.deepspeed_version),
                     job.deepspeed_source);
}

std::optional<std::int64_t> lowest_micro_batch(const JobSpec& job) {
  const auto written = job.ds_config.find("train_micro_batch_size_per_gpu");
  const bool is_integer = written != job.ds_config.end() && written->is_number_integer();
  return is_integer ? std::optional(written->get<std::int64_t>()) : std::nullopt;
}

std::vector<Violation> violations_for(const JobSpec& job, const Settings& settings) {
  std::vector<Violation> violations = violations_of(settings);
  // DeepSpeed looks at the section where it is called for it.
  if (!job.key_use.reads_checkpointing)
    std::erase_if(violations, [](const Violation& violation) {
      return violation.pointer.starts_with("/activation_checkpointing/");
    });
  if (job.takes_any_key())
    std::erase_if(violations,
                  [](const Violation& violation) { return violation.weight == Weight::unbuilt; });
  return violations;
}

std::vector<Problem> problems_for(const JobSpec& job, const json::Problems& found) {
  std::vector<Problem> problems = found.all();
  if (job.takes_any_key()) std::erase_if(problems, std::mem_fn(&Problem::is_unknown_key));
  return problems;
}

bool is_planned(const JobSpec& job) {
  return std::ranges::none_of(job.instruments, [&](const WorkloadSpec& one) {
    return one.kind == WorkloadKind::plugin ||
           (one.kind == WorkloadKind::deepspeed && !job.is_model_known);
  });
}

std::string why_not_planned(const JobSpec& job) {
  return job.is_by_engine() ? "training in DeepSpeed's engine has no plan without dstune.model"
                            : "this workload has no plan";
}

std::string target_refusal(const JobSpec& job, const TrainingConfig& config) {
  if (job.takes_any_key()) return "";
  if (job.target.framework == TargetFramework::self || config.zero_stage < 3 ||
      config.recompute != Recompute::selective)
    return "";
  return "/dstune/activation_recompute: selective fails in PyTorch under ZeRO stage 3, whose "
         "gathers are not the same when forward is run again: take none or block, or another stage";
}

namespace {

/// The job of a file, whose document is beside it; problems are not located.
JobSpec read_document(const std::string& path, const ConfigFile& file,
                      std::shared_ptr<const json::Document> document, const Overrides& overrides,
                      const std::optional<Machine>& machine, int default_ranks) {
  JobSpec job;
  job.document = std::move(document);
  for (const Problem& note : file.notes) job.warnings.push_back(note.text());
  job.folder = std::filesystem::path(path).parent_path().string();
  job.recompute = {TrainingConfig().recompute};
  job.machine = machine;
  job.experiment_files = overrides.experiment_files;

  json::Problems problems;
  const auto written = job.document->node();
  if (!written.expect_object(problems)) problems.check();
  const auto replaced = replace_own_variables(written, problems);
  const json::Node root(*job.document, replaced, "");

  job.tuning.tuner_type = overrides.tuner_type.value_or("");
  if (overrides.deepspeed_version) {
    job.deepspeed_version = *overrides.deepspeed_version;
    job.deepspeed_source = "--deepspeed-version";
  }
  json::Problems of_sections;
  SectionTarget target{.job = &job, .problems = &of_sections};
  if (const auto section = given(root, "autotuning")) read_autotuning(*section, target);
  apply(overrides, job.tuning);
  const auto section = given(root, "dstune");
  if (section) read_dstune(*section, target);
  target.problems = &problems;
  add_section_problems(of_sections, target);
  decide_verify(overrides, target);
  decide_measuring(root, target);
  // An engine that only measures what its work costs comes before our own step.
  if (target.measuring) job.instruments.insert(job.instruments.begin(), *target.measuring);
  if (target.verify) job.instruments.push_back(*target.verify);
  decide_machine(overrides, section ? &*section : nullptr, target);
  const auto resources = section ? given(*section, "resources") : std::nullopt;
  decide_shapes(resources ? &*resources : nullptr,
                usual_machine(file.shape, usual_ranks(job, default_ranks)), target);
  if (file.shape && !job.shapes.empty() && job.shapes.front().size() != file.shape->size())
    job.warnings.push_back(fmt::format("{} starts {}, and groups take {} here", path,
                                       format_count(file.shape->size(), "rank"),
                                       format_count(job.shapes.front().size(), "rank")));
  decide_model(overrides, root, section ? &*section : nullptr, target);
  job.ds_config = replaced;
  for (const char* const ours : our_sections) job.ds_config.erase(ours);
  take_from_command(section ? &*section : nullptr, target);
  decide_sequence_length(target);
  decide_trainable(overrides, section ? &*section : nullptr, target);
  check_engine(target);

  decide_release(overrides.python, section ? *section : root, target);
  for (std::string& note : drop_without_effect(job.knobs(), job.ds_config))
    job.warnings.push_back(std::move(note));
  job.key_use = key_use_of(job, overrides.is_on_cpus);
  decide_precision(overrides.precision, target);
  const bool is_size_known = is_of_trainer(job) && job.model.hidden_size > 0;
  job.auto_values = auto_values(
      job.precision, is_size_known ? std::optional(job.model.hidden_size) : std::nullopt);
  for (const auto& [pointer, number] : job.command.numbers) job.auto_values[pointer] = number;
  keep_global_batch(section ? &*section : nullptr, target);
  if (job.experiment_files.empty()) expand_and_warn(job, problems);
  problems.check();
  decide_target_optimizer(overrides, section ? &*section : nullptr, job);
  decide_pinning(job);
  add_assumptions(section ? &*section : nullptr, job);
  // Files of experiments are run, all of them.
  if (job.tuning.tuner_type.empty())
    job.tuning.tuner_type = job.experiment_files.empty() ? default_tuner_type : "gridsearch";
  return job;
}

}  // namespace

JobSpec read_job(const std::string& path, const Overrides& overrides,
                 const std::optional<Machine>& machine, int default_ranks) {
  ConfigFile file = read_config_file(path);
  const auto document = std::make_shared<const json::Document>(std::move(file.document));
  try {
    return read_document(path, file, document, overrides, machine, default_ranks);
  } catch (const InputError& error) {
    std::vector<Problem> problems;
    for (const Problem& problem : error.problems()) problems.push_back(document->located(problem));
    throw InputError(std::move(problems));
  }
}

}  // namespace dstune
