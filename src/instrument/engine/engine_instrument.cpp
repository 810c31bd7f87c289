#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/clock.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/comm/agreement.hpp"
#include "dstune/core/launch_line.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/instrument/engine/engine.hpp"
#include "engine/needed_operators.hpp"
#include "instruments.hpp"
#include "limits.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;

/// The limit is for large environments on a busy file system, read by all ranks of a job at once.
constexpr std::chrono::minutes import_timeout{20};
constexpr std::chrono::seconds progress_every{10};

/// Python may take so long to come back after a failure.
constexpr double python_drain_timeout_s = 20;

/// Older ones lack what freeing an engine takes.
constexpr Version oldest_engine{0, 16, 0};

/// The line that starts the script: the workload's own, or the user's.
std::string script_line(const JobSpec& job) {
  const json::Value& options = job.engine()->options;
  const bool is_own = job.is_script_named;
  if (!is_own) return job.training_command ? job.training_command->text : "";
  std::string line = shell_quote(options.at("script").get<std::string>());
  const auto args = options.find("args");
  if (args == options.end()) return line;
  for (const json::Value& word : *args) line += " " + shell_quote(word.get<std::string>());
  return line;
}

InputError command_error(const JobSpec& job, const std::string& message) {
  const std::string pointer = "/dstune/training_command";
  return InputError({job.document->problem(pointer, message)});
}

/// The space's word on the training beside the configuration. A default of ours is no
/// word of the user's: a script that does otherwise is not wrong.
json::Value stated_in(const json::Document& document) {
  json::Value names = json::Value::array();
  const auto section = document.root().find("dstune");
  if (section == document.root().end() || !section->is_object()) return names;
  for (const char* name : {"activation_recompute", "sequence_length"})
    if (section->contains(name) && !section->at(name).is_null()) names.push_back(name);
  return names;
}

/// The words that ranks must have alike.
std::string words_of(const engine::Loaded& loaded) {
  std::string text = "script " + loaded.script_hash;
  for (const auto& [name, version] : loaded.versions) text += fmt::format(", {} {}", name, version);
  return text;
}

std::vector<int> numbers_in(const std::vector<std::string>& texts) {
  std::set<int> numbers;
  for (const std::string& text : texts)
    for (const std::string_view word : split(text, ' '))
      if (!word.empty()) numbers.insert(std::atoi(std::string(word).c_str()));
  return {numbers.begin(), numbers.end()};
}

/// Loads, and says now and then what it is about.
void load(engine::Engine& engine, const WorkloadSpec& workload,
          const std::vector<int>& foreign_ports, bool speaks) {
  auto said_at = SteadyClock::now();
  std::string last;
  const auto tell = [&]() -> bool {
    const std::string progress = engine.channel().take_progress();
    if (!progress.empty()) last = progress;
    if (!speaks || last.empty() || SteadyClock::now() - said_at < progress_every) return false;
    said_at = SteadyClock::now();
    log::info(fmt::format(log_text::python_says, last));
    return false;
  };
  try {
    engine.prepare(workload, foreign_ports,
                   Waiter(SteadyClock::now() + import_timeout, tell, true));
  } catch (const CollectiveError&) {
    throw Error(fmt::format("Python has not loaded after {}{}",
                            format_duration(seconds(import_timeout)),
                            last.empty() ? "" : ", while " + last));
  }
}

/// The arguments of the script for an experiment: the workload's args, or the command's, with
/// `autotuning.arg_mappings`. `$CONFIG` stands where the configuration's file goes.
std::vector<std::string> script_arguments(const JobSpec& job, const Experiment& experiment) {
  const auto command =
      script_command(script_line(job), experiment.ds_config, job.tuning.arg_mappings);
  return command ? command->arguments : std::vector<std::string>{};
}

/// Returns why what Python loaded is not the DeepSpeed that the job is for; empty: it is.
std::string engine_release_violation(const JobSpec& job, const engine::Loaded& loaded) {
  const auto found = loaded.versions.find("deepspeed");
  const auto version = found == loaded.versions.end() ? std::nullopt : parse_version(found->second);
  if (!version || *version == job.deepspeed_version) return "";
  return fmt::format(
      "its Python has DeepSpeed {}, and the space is read for {} ({}): name {} as the version, or "
      "an environment that has the other as \"python\"",
      found->second, to_text(job.deepspeed_version), job.deepspeed_source, found->second);
}

/// DeepSpeed's own engine, in the Python of every rank.
class EngineInstrument : public Instrument {
 public:
  using Instrument::Instrument;

  [[nodiscard]] InstrumentTraits traits() const override {
    return {.name = "engine",
            .source = "DeepSpeed's engine",
            // The label holds as far as what it trains is the user's.
            .label = spec_.options.contains("script") ? "verified" : "engine",
            .takes_any_key = true,
            .loads_pytorch = true};
  }

  [[nodiscard]] json::Value identity(const JobSpec& job,
                                     const Experiment& experiment) const override {
    json::Value identity = Instrument::identity(job, experiment);
    identity["options"] = spec_.options;
    identity["options"].erase("python");
    identity["options"].erase("folder");
    identity["script_hash"] = loaded().script_hash;
    identity["versions"] = loaded().versions;
    identity["arguments"] = script_arguments(job, experiment);
    identity["model"] = spec_.model_config;
    return identity;
  }

  [[nodiscard]] Forecasts forecasts(const JobSpec& /*job*/) const override {
    return {.judges_here = false};
  }

  void prune(const JobSpec& job, PlannedSpace& space) override {
    if (const auto other = engine_release_violation(job, loaded()); !other.empty())
      throw InputError({problem(job, other)});
    if (job.is_by_engine()) engine::prune_for_operators(job, space, *engine_);
  }

  [[nodiscard]] RunLimits limits(const RunForecast& forecast) const override {
    RunLimits limits = limits_of_foreign_code(forecast);
    // Python comes back from what it computes, and can not be stopped inside of it.
    limits.drain_timeout_s = std::max(limits.drain_timeout_s, python_drain_timeout_s);
    return limits;
  }

  [[nodiscard]] RunInput input(const JobSpec& job, const Experiment& experiment) const override {
    return {experiment.ds_config.dump(), script_arguments(job, experiment)};
  }

  [[nodiscard]] Problem problem(const JobSpec& job, const std::string& message) const override {
    return engine_problem(job, message);
  }

  [[nodiscard]] json::Value environment() const override {
    return {{"versions", loaded().versions},
            {"paths", loaded().paths},
            {"script_hash", loaded().script_hash},
            {"missing_operators", loaded().missing_operators},
            {"resident_bytes", loaded().resident_bytes}};
  }

  /// Loads what the workload needs into every rank's Python, and agrees that it is the same; rank 0
  /// says how far it is.
  Started start(const StartContext& context) override {
    is_alone_ = context.is_alone;
    Started loaded;
    const Communicator& world = context.world;
    const bool is_first = world.rank() == 0;
    if (is_first) log::info(log_text::python_loads);
    const auto began = SteadyClock::now();
    std::string own_ports;
    loaded.violation = first_violation(world, [&] {
      engine::Channel* const channel = engine::Channel::current();
      if (channel == nullptr) {
        throw Error(context.python_refusal.empty()
                        ? "this rank does not run in Python: it could not read the space "
                          "file before MPI started"
                        : context.python_refusal);
      }
      engine_ = std::make_unique<engine::Engine>(
          *channel, engine::RankPlace{.world_rank = context.world_rank,
                                      .local_rank = context.local_rank,
                                      .on_gpu = context.on_gpu,
                                      .device_index = context.device_index,
                                      .threads = context.threads});
      const Waiter waiter = Waiter().with_deadline(SteadyClock::now() + import_timeout);
      own_ports = fmt::format("{}", fmt::join(engine_->listening_ports(waiter), " "));
    });
    if (!loaded.violation.empty()) return loaded;
    const std::vector<int> ports = numbers_in(gather_texts(world, own_ports));
    loaded.violation = first_violation(world, [&] { load(*engine_, spec_, ports, is_first); });
    if (!loaded.violation.empty()) return loaded;
    const std::vector<std::string> all = gather_texts(world, words_of(engine_->loaded()));
    for (std::size_t rank = 1; rank < all.size() && loaded.violation.empty(); ++rank)
      if (all[rank] != all.front())
        loaded.violation = fmt::format("rank {} has {}, and rank 0 {}: all need the same", rank,
                                       all[rank], all.front());
    if (is_first && loaded.violation.empty()) {
      log::info(fmt::format(log_text::python_loaded, words_of(engine_->loaded()),
                            format_duration(seconds(SteadyClock::now() - began))));
      std::vector<std::string> missing;
      for (const auto& [name, command] : engine_->loaded().missing_operators)
        missing.push_back(name);
      if (!missing.empty())
        log::info(fmt::format(log_text::operators_missing, fmt::join(missing, ", ")));
    }
    return loaded;
  }

  [[nodiscard]] std::unique_ptr<Workload> make(const RunContext& context) override {
    if (!is_alone_) make_room(*context.device, context.has_own_model);
    WorkloadContext own = context;
    own.ds_config = &context.input->ds_config;
    own.settled = &settled_;
    return engine_->make_workload(own, assignment_of(context));
  }
  std::vector<std::string> end(bool failed, const Waiter& waiter) override {
    return engine_ == nullptr ? std::vector<std::string>{} : engine_->end(failed, waiter);
  }
  [[nodiscard]] std::vector<std::string> take_notes() override {
    return engine_ == nullptr ? std::vector<std::string>{} : engine_->take_notes();
  }
  [[nodiscard]] bool is_stuck() const override { return engine_ != nullptr && engine_->is_stuck(); }

 private:
  [[nodiscard]] const engine::Loaded& loaded() const { return engine_->loaded(); }

  /// The memory of our own step is given back. Memory that its libraries keep is not counted as the
  /// engine's; nor are leftovers of tiny models.
  void make_room(Device& device, bool is_tiny) {
    device.arena().free();
    device.host_arena().free();
    if (is_tiny) return;
    if (!has_run_) engine_->note_resident_bytes(process_resident_bytes());
    has_run_ = true;
  }

  /// The facts on a run that the engine needs beside the workload's context.
  [[nodiscard]] engine::Assignment assignment_of(const RunContext& context) const {
    const Topology& topology = *context.topology;
    const auto node_of = [&](int rank) {
      return topology.node_of_rank[static_cast<std::size_t>(rank)];
    };
    const int own_node = node_of(topology.world_rank);
    engine::Assignment place{.attempt = context.attempt,
                             .arguments = context.input->arguments,
                             .timeout_s = context.timeout_s,
                             .drain_timeout_s = context.drain_timeout_s,
                             .trains_model = !spec_.model_config.empty()};
    if (context.has_own_model) place.own_model = to_json(*context.model);
    place.group_local_size = 0;
    std::vector<int> nodes;
    for (const int rank : *context.world_ranks) {
      if (std::ranges::find(nodes, node_of(rank)) == nodes.end()) nodes.push_back(node_of(rank));
      if (node_of(rank) != own_node) continue;
      if (rank < topology.world_rank) ++place.group_local_rank;
      ++place.group_local_size;
    }
    place.group_nodes = static_cast<int>(nodes.size());
    place.group_node = static_cast<int>(std::ranges::find(nodes, own_node) - nodes.begin());
    const int leader_node = node_of(context.world_ranks->front());
    place.leader_host =
        nodes.size() == 1 ? "127.0.0.1" : topology.hosts[static_cast<std::size_t>(leader_node)];
    return place;
  }

  std::unique_ptr<engine::Engine> engine_;  ///< null before start(), and where that failed
  bool is_alone_ = true;
  bool has_run_ = false;
  SettledSteps settled_;
};

}  // namespace

void instrument::complete_engine(JobSpec& job, WorkloadSpec& spec) {
  if (job.deepspeed_version < oldest_engine)
    throw InputError({engine_problem(
        job, fmt::format("DeepSpeed {} ({}) can not run in the ranks of a job: {} or "
                         "newer can",
                         to_text(job.deepspeed_version), job.deepspeed_source,
                         to_text(oldest_engine)))});
  json::Value& options = spec.options;
  options["type"] = "deepspeed";
  options["folder"] = (fs::current_path() / job.folder).lexically_normal().string();
  if (!job.is_by_engine()) {
    options["imports_only"] = true;
    return;
  }
  // Journals from before have none.
  if (json::Value stated = stated_in(*job.document); !stated.empty())
    options["stated"] = std::move(stated);
  job.is_script_named = options.contains("script");
  if (job.is_script_named || !job.training_command) return;
  const auto command = script_command(job.training_command->text, json::Value::object(), {});
  if (!command)
    throw command_error(job, fmt::format("no word in it ends in .py: name the script as {}",
                                         job.instruments.size() > 1
                                             ? "--verify=SCRIPT, or \"script\" in dstune.verify"
                                             : "\"script\" in dstune.workload"));
  const std::string path =
      fs::absolute(path_in_command(job.folder, command->script)).lexically_normal().string();
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    throw command_error(
        job, fmt::format("its script {} does not exist: name a file that does, seen from the "
                         "folder of {}",
                         path, job.document->file()));
  options["script"] = path;
}

std::unique_ptr<Instrument> instrument::engine(const WorkloadSpec& spec) {
  return std::make_unique<EngineInstrument>(spec);
}

}  // namespace dstune
