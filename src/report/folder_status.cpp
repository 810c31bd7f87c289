#include "dstune/report/folder_status.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/report/folder_lock.hpp"
#include "entries.hpp"
#include "lock_holder.hpp"
#include "parts.hpp"

namespace dstune {
namespace {

constexpr std::array phases{TuningPhase::start,  TuningPhase::profiling, TuningPhase::planning,
                            TuningPhase::search, TuningPhase::finals,    TuningPhase::writing,
                            TuningPhase::done};

constexpr std::array<std::pair<FolderStatus::Life, const char*>, 4> lives{
    {{FolderStatus::Life::running, "running"},
     {FolderStatus::Life::ended, "ended"},
     {FolderStatus::Life::gone, "gone"},
     {FolderStatus::Life::unknown, "unknown"}}};

template <class Number>
Number number_of(const json::Value& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<Number>() : Number{};
}

std::chrono::system_clock::time_point time_of(const json::Value& object, const char* key) {
  return parse_time(entries::text_of(object, key))
      .value_or(std::chrono::system_clock::time_point{});
}

/// Null where nobody knows it.
json::Value time_json(std::chrono::system_clock::time_point time) {
  return time == std::chrono::system_clock::time_point{} ? json::Value()
                                                         : json::Value(format_time(time));
}

/// A file of the folder as JSON; null where it is missing, or is no object.
json::Value object_of(const std::string& folder, std::string_view name) {
  const auto content = entries::content_of(fmt::format("{}/{}", folder, name));
  json::Value value = json::Value::parse(content.value_or(""), nullptr, false);
  return value.is_object() ? value : json::Value();
}

/// The command that ends the job cleanly. A batch system is asked, since its script would start a
/// job again whose process alone has ended.
std::string how_to_stop(const LockHolder& holder) {
  constexpr std::array<std::pair<std::string_view, const char*>, 5> commands{
      {{"SLURM_JOB_ID", "scancel"},
       {"PBS_JOBID", "qdel"},
       {"LSB_JOBID", "bkill"},
       {"FLUX_JOB_ID", "flux cancel"},
       {"COBALT_JOBID", "qdel"}}};
  const std::size_t equals = holder.batch_job.find('=');
  // The line is to be pasted into a shell, and the lock may be anybody's.
  const bool is_plain = std::ranges::all_of(holder.batch_job, [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
           std::string_view("_-.[]=@:").find(letter) != std::string_view::npos;
  });
  if (!is_plain) return "";
  for (const auto& [name, command] : commands)
    if (equals != std::string::npos && holder.batch_job.substr(0, equals) == name)
      return fmt::format("{} {}", command, holder.batch_job.substr(equals + 1));
  if (holder.process_id <= 0) return "";
  return fmt::format("kill -TERM {}", holder.process_id) +
         (holder.host.empty() || holder.host == this_process().host ? ""
                                                                    : " on host " + holder.host);
}

bool is_stale(double age_s) {
  return age_s > std::chrono::duration<double>(LockTimes{}.stale).count();
}

/// Reads the lock, and says whether its holder lives.
FolderStatus::Life look_at_lock(FolderStatus& status) {
  const std::string path = fmt::format("{}/{}", status.folder, file_name::lock);
  const auto found = entries::status_of(path);
  const LockHolder holder = LockHolder::parse(entries::content_of(path).value_or(""));
  if (!found || holder.host.empty())
    return status.end.is_null() ? FolderStatus::Life::unknown : FolderStatus::Life::ended;
  const double modified_s = static_cast<double>(found->st_mtim.tv_sec) +
                            static_cast<double>(found->st_mtim.tv_nsec) * 1e-9;
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  LockSign& sign = status.lock.emplace();
  sign.holder = holder.words();
  sign.age_s = std::max(0.0, now.count() - modified_s);
  const Life life = life_of(holder);
  const bool is_gone = life == Life::dead || (life == Life::unknown && is_stale(sign.age_s));
  if (!is_gone) {
    sign.how_to_stop = how_to_stop(holder);
    return FolderStatus::Life::running;
  }
  // Its last word counts where it was killed behind that. The next job removes it.
  return status.end.is_null() ? FolderStatus::Life::gone : FolderStatus::Life::ended;
}

const char* to_text(FolderStatus::Life life) {
  return std::ranges::find(lives, life, &std::pair<FolderStatus::Life, const char*>::first)->second;
}

std::string why_no_results(const std::string& folder) {
  std::string why = "there are no results of dstune-mpi";
  if (::access(folder.c_str(), F_OK) != 0)
    why = "there is no such folder";
  else if (::access(folder.c_str(), R_OK | X_OK) != 0)
    why = std::string("the folder can not be read (") + std::strerror(errno) + ")";
  // A job that found files of others in the default folder has taken this one.
  const std::string other = std::filesystem::path(folder).parent_path() / file_name::other_results;
  if (folder != other && ::access(other.c_str(), F_OK) == 0)
    return fmt::format("{}; the folder {} is there: name it, or that of --results-dir", why, other);
  return why + ": name the folder of --results-dir";
}

std::string heading(const FolderStatus& status) {
  switch (status.life) {
    case FolderStatus::Life::running:
      return "a job is running";
    case FolderStatus::Life::ended:
      return fmt::format("the job has ended with exit code {} ({}), at {}",
                         number_of<int>(status.end, "exit_code"),
                         entries::text_of(status.end, "reason"),
                         entries::text_of(status.end, "finished_at"));
    case FolderStatus::Life::gone:
      return "the job is gone without a word; the same command resumes it";
    case FolderStatus::Life::unknown:
      break;
  }
  return "no job is running, and the last one did not say how it ended; the same command resumes "
         "it";
}

std::string experiments_text(const JobState& state, bool is_running) {
  std::string text = fmt::format("{} of {} ended", state.done, state.planned);
  if (state.known > 0) text += fmt::format(", {} of them in earlier jobs", state.known);
  if (is_running && state.running > 0) text += fmt::format("; {} running", state.running);
  return text;
}

/// optimal.json in words.
std::string best_text(const json::Value& best) {
  std::string text = entries::text_of(best, "name");
  if (const auto value = best.find("value"); value != best.end() && value->is_number()) {
    text += fmt::format(": {}", format_number(value->get<double>()));
    if (const auto metric = find_value(texts_of(Metric{}), entries::text_of(best, "metric")))
      text += fmt::format(" {}", unit_text(static_cast<Metric>(*metric)));
  }
  const auto baseline = best.find("baseline");
  if (baseline == best.end() || !baseline->is_object()) return text;
  if (entries::text_of(*baseline, "name") == entries::text_of(best, "name"))
    return text + ", your own configuration";
  const auto number = [&](const char* key) {
    const auto found = baseline->find(key);
    return found != baseline->end() && found->is_number() ? std::optional(found->get<double>())
                                                          : std::nullopt;
  };
  BaselineStanding standing;
  standing.gain = number("gain");
  standing.gain_low = number("gain_low");
  standing.gain_high = number("gain_high");
  if (standing.gain)
    text += fmt::format(", {} times as fast as your configuration", factor_text(standing));
  return text;
}

}  // namespace

json::Value state_json(const JobState& state) {
  json::Value left;
  if (state.left)
    left = {{"seconds", finite_or_null(state.left->seconds)},
            {"low_s", finite_or_null(state.left->low_s)},
            {"high_s", finite_or_null(state.left->high_s)},
            {"assumes", state.left->assumes}};
  return {{"is_running", state.is_running},
          {"phase", to_text(state.phase)},
          {"as_of", time_json(state.as_of)},
          {"began_at", time_json(state.began_at)},
          {"elapsed_s", state.elapsed_s},
          {"phase_elapsed_s", state.phase_elapsed_s},
          {"planned", state.planned},
          {"done", state.done},
          {"known", state.known},
          {"running", state.running},
          {"left", std::move(left)},
          {"time_limit_s", finite_or_null(state.time_limit_s)},
          {"reason", state.reason}};
}

std::optional<JobState> state_of(const json::Value& value) {
  if (!value.is_object() || !value.contains("phase")) return std::nullopt;
  JobState state;
  const std::string phase = entries::text_of(value, "phase");
  const auto named = std::ranges::find_if(
      phases, [&](const TuningPhase one) { return dstune::to_text(one) == phase; });
  if (named == phases.end()) return std::nullopt;
  state.phase = *named;
  const auto running = value.find("is_running");
  state.is_running = running != value.end() && running->is_boolean() && running->get<bool>();
  state.as_of = time_of(value, "as_of");
  state.began_at = time_of(value, "began_at");
  state.elapsed_s = number_of<double>(value, "elapsed_s");
  state.phase_elapsed_s = number_of<double>(value, "phase_elapsed_s");
  state.planned = number_of<std::size_t>(value, "planned");
  state.done = number_of<std::size_t>(value, "done");
  state.known = number_of<std::size_t>(value, "known");
  state.running = number_of<std::size_t>(value, "running");
  if (const auto left = value.find("left"); left != value.end() && left->is_object())
    state.left = TimeLeft{number_of<double>(*left, "seconds"), number_of<double>(*left, "low_s"),
                          number_of<double>(*left, "high_s"), entries::text_of(*left, "assumes")};
  if (const auto limit = value.find("time_limit_s"); limit != value.end() && limit->is_number())
    state.time_limit_s = limit->get<double>();
  state.reason = entries::text_of(value, "reason");
  return state;
}

FolderStatus folder_status(const std::string& folder) {
  FolderStatus status{.folder = folder};
  const auto has = [&](std::string_view name) {
    return entries::is_regular(fmt::format("{}/{}", folder, name));
  };
  status.end = object_of(folder, file_name::exit_status);
  if (!status.end.is_null() && !status.end.contains("exit_code")) status.end = {};
  // The folder of the experiments has a manifest, too.
  if (!has(file_name::lock) && !has(file_name::journal) && !has(file_name::state) &&
      status.end.is_null())
    throw InputError({Problem{folder, "", 0, why_no_results(folder)}});
  status.life = look_at_lock(status);
  status.state = state_of(object_of(folder, file_name::state));
  status.best = object_of(folder, file_name::optimal);
  return status;
}

std::string status_text(const FolderStatus& status) {
  std::string text = fmt::format("{}: {}.\n", status.folder, heading(status));
  const auto add = [&](const char* what, const std::string& words) {
    if (!words.empty()) text += fmt::format("  {:<13}{}\n", what, words);
  };
  const bool is_running = status.life == FolderStatus::Life::running;
  if (status.state && status.life != FolderStatus::Life::ended) {
    const JobState& state = *status.state;
    std::string phase =
        fmt::format("{}, for {}; {} since the start", dstune::to_text(state.phase),
                    format_duration(state.phase_elapsed_s), format_duration(state.elapsed_s));
    if (state.time_limit_s)
      phase += fmt::format(" of at most {}", format_duration(*state.time_limit_s));
    add("phase", phase);
    if (state.planned > 0) add("experiments", experiments_text(state, is_running));
    if (state.left && is_running)
      add("left",
          fmt::format("about {} ({})", format_duration(state.left->seconds), state.left->assumes));
    add("as of", format_time(state.as_of));
  }
  if (!status.best.is_null()) add(is_running ? "best so far" : "best", best_text(status.best));
  // A lock that a job left behind it is none of its life.
  if (status.lock && status.life != FolderStatus::Life::ended)
    add(is_running ? "sign of life" : "last seen",
        fmt::format("{} ago ({})", format_duration(status.lock->age_s), status.lock->holder));
  if (is_running && !status.lock->how_to_stop.empty())
    add("to stop it", status.lock->how_to_stop + "; the same command resumes");
  return text;
}

json::Value status_json(const FolderStatus& status) {
  json::Value lock;
  if (status.lock)
    lock = {{"holder", status.lock->holder},
            {"age_s", status.lock->age_s},
            {"how_to_stop", status.lock->how_to_stop}};
  return {{"results_dir", status.folder},
          {"life", to_text(status.life)},
          {"state", status.state ? state_json(*status.state) : json::Value()},
          {"best", status.best},
          {"exit_status", status.end},
          {"lock", std::move(lock)}};
}

}  // namespace dstune
