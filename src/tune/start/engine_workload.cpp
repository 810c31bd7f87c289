#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/launch_line.hpp"
#include "start/preparation.hpp"
#include "waiting.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;

/// Of large environments on a busy file system, read by all ranks of a job at once.
constexpr std::chrono::minutes import_timeout{20};
constexpr std::chrono::seconds progress_every{10};

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
  return InputError({{job.document->file(), pointer, job.document->line(pointer), message}});
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

/// What ranks must have alike.
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
    log::info("Python: " + last);
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

}  // namespace

void complete_engine_workload(JobSpec& job) {
  WorkloadSpec* const engine = job.engine();
  if (engine == nullptr) return;
  if (job.deepspeed_version < oldest_engine)
    throw InputError({engine_problem(
        job, fmt::format("DeepSpeed {} ({}) can not run in the ranks of a job: {} or "
                         "newer can",
                         to_text(job.deepspeed_version), job.deepspeed_source,
                         to_text(oldest_engine)))});
  json::Value& options = engine->options;
  options["type"] = "deepspeed";
  options["folder"] = (fs::current_path() / job.folder).lexically_normal().string();
  if (job.measuring) {
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
    throw command_error(job,
                        fmt::format("no word in it ends in .py: name the script as {}",
                                    job.verify ? "--verify=SCRIPT, or \"script\" in dstune.verify"
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

std::vector<std::string> script_arguments(const JobSpec& job, const Experiment& experiment) {
  const auto command =
      script_command(script_line(job), experiment.ds_config, job.tuning.arg_mappings);
  return command ? command->arguments : std::vector<std::string>{};
}

LoadedEngine load_engine_everywhere(const Communicator& world, const WorkloadSpec& workload,
                                    const engine::RankPlace& place, const std::string& refusal) {
  LoadedEngine loaded;
  if (workload.kind != WorkloadKind::deepspeed) return loaded;
  const bool is_first = world.rank() == 0;
  if (is_first) log::info("Python loads torch and DeepSpeed");
  const auto began = SteadyClock::now();
  std::string own_ports;
  loaded.violation = first_violation(world, [&] {
    engine::Channel* const channel = engine::Channel::current();
    if (channel == nullptr) {
      throw Error(refusal.empty() ? "this rank does not run in Python: it could not read the space "
                                    "file before MPI started"
                                  : refusal);
    }
    loaded.engine = std::make_unique<engine::Engine>(*channel, place);
    const Waiter waiter = Waiter().with_deadline(SteadyClock::now() + import_timeout);
    own_ports = fmt::format("{}", fmt::join(loaded.engine->listening_ports(waiter), " "));
  });
  if (!loaded.violation.empty()) return loaded;
  const std::vector<int> ports = numbers_in(gather_texts(world, own_ports));
  loaded.violation =
      first_violation(world, [&] { load(*loaded.engine, workload, ports, is_first); });
  if (!loaded.violation.empty()) return loaded;
  const std::vector<std::string> all = gather_texts(world, words_of(loaded.engine->loaded()));
  for (std::size_t rank = 1; rank < all.size() && loaded.violation.empty(); ++rank)
    if (all[rank] != all.front())
      loaded.violation = fmt::format("rank {} has {}, and rank 0 {}: all need the same", rank,
                                     all[rank], all.front());
  if (is_first && loaded.violation.empty()) {
    log::info(fmt::format("Python: {}, after {}", words_of(loaded.engine->loaded()),
                          format_duration(seconds(SteadyClock::now() - began))));
    std::vector<std::string> missing;
    for (const auto& [name, command] : loaded.engine->loaded().missing_operators)
      missing.push_back(name);
    if (!missing.empty())
      log::info(
          fmt::format("operators of DeepSpeed that are not built, so that configurations fail "
                      "that need them: {}; environment.json has the command for each",
                      fmt::join(missing, ", ")));
  }
  return loaded;
}

std::string engine_release_violation(const JobSpec& job, const engine::Loaded& loaded) {
  const auto found = loaded.versions.find("deepspeed");
  const auto version = found == loaded.versions.end() ? std::nullopt : parse_version(found->second);
  if (!version || *version == job.deepspeed_version) return "";
  return fmt::format(
      "its Python has DeepSpeed {}, and the space is read for {} ({}): name {} as the version, or "
      "an environment that has the other as \"python\"",
      found->second, to_text(job.deepspeed_version), job.deepspeed_source, found->second);
}

}  // namespace dstune
