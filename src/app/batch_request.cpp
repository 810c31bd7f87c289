#include "batch_request.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "job_options.hpp"
#include "option_table.hpp"

namespace dstune {
namespace {

constexpr double hour_s = 3600;
constexpr double usual_limit_s = hour_s;
constexpr double max_limit_s = 365 * 24 * hour_s;
constexpr double usual_limit_with_training_s = 24 * hour_s;

/// A job may start in another folder.
std::string job_value(const OptionRow& row, const std::string& value) {
  namespace fs = std::filesystem;
  const bool names_file = row.kind == ValueKind::file || row.kind == ValueKind::folder;
  std::error_code failed;
  if (!names_file || value.empty() || !fs::exists(value, failed)) return value;
  // The folders of results are the job's own.
  if (row.name == "results-dir" || row.name == "exps-dir") return value;
  const fs::path path = fs::absolute(value, failed);
  return failed ? value : path.lexically_normal().string();
}

/// Returns the options that the job gets as they were given. The script has a setting for its time
/// and its results folder.
std::vector<std::string> job_words_of(const OptionValues& given) {
  std::vector<std::string> words;
  for (const OptionRow& row : option_table()) {
    const bool is_setting = row.name == "time-limit" || row.name == "results-dir";
    if (is_setting || !takes(Command::job, row) || !given.has(row.name.c_str())) continue;
    const std::string name = "--" + row.name;
    if (row.form.empty()) {
      words.push_back(name);
    } else if (row.repeats) {
      for (const std::string& value : given.all(row.name.c_str()))
        words.insert(words.end(), {name, job_value(row, value)});
    } else if (const std::string value = *given.text(row.name.c_str()); is_value_optional(row)) {
      words.push_back(value == own_script ? name : name + "=" + job_value(row, value));
    } else {
      words.insert(words.end(), {name, job_value(row, value)});
    }
  }
  return words;
}

std::string directive_word(const char* name, const OptionValues& given) {
  const std::optional<std::string> word = given.text(name);
  if (!word) return "";
  const std::string violation = directive_word_violation(*word);
  if (!violation.empty()) given.refuse(name, "expected one word, but " + violation);
  return *word;
}

std::vector<std::string> directives_of(const OptionValues& given) {
  std::vector<std::string> directives = given.all("batch-option");
  for (const std::string& directive : directives) {
    if (const std::string violation = directive_violation(directive); !violation.empty())
      throw UsageError("--batch-option: expected one directive, but " + violation);
    if (!directive.starts_with('-'))
      throw UsageError(fmt::format(
          "--batch-option: expected a directive with its dashes, such as --constraint=a100, not {}",
          directive));
  }
  return directives;
}

/// How long the job tunes before it trains; nothing where it does not.
std::optional<double> tune_time(double limit_s, const OptionValues& given) {
  const std::optional<double> asked_s = given.duration_s("tune-time");
  if (!given.has("then-train")) {
    if (asked_s) throw UsageError("--tune-time is for --then-train: add it, or write --time-limit");
    return std::nullopt;
  }
  if (asked_s && (*asked_s <= 0 || *asked_s >= limit_s))
    given.refuse("tune-time",
                 "expected more than 0 and less than the time limit of the job, which also trains");
  return asked_s.value_or(std::min(hour_s, limit_s / 2));
}

}  // namespace

BatchRequest batch_request(const std::string& system, const OptionValues& given) {
  const std::optional<BatchSystem> known = batch_system_of(system);
  if (!known)
    throw UsageError(
        fmt::format("\"{}\" is no batch system that is known: write dstune-mpi batch "
                    "slurm|pbs|lsf|flux [options] space.json{}",
                    system, json::suggestion(system, {"slurm", "pbs", "lsf", "flux"})));
  constexpr int max_nodes = 1 << 20;
  constexpr int max_a_node = 1024;
  BatchRequest request;
  request.system = *known;
  request.nodes = given.whole_number<int>("nodes", 1, max_nodes);
  request.gpus_per_node = given.whole_number<int>("gpus-per-node", 1, max_a_node);
  request.tasks_per_node = given.whole_number<int>("tasks-per-node", 1, max_a_node);
  request.cpus_per_task =
      given.whole_number<int>("cpus-per-task", 1, max_a_node).value_or(request.cpus_per_task);
  request.max_restarts = given.whole_number<int>("requeue", 0, 1000).value_or(0);
  request.time_limit_s =
      given.duration_s("time-limit")
          .value_or(given.has("then-train") ? usual_limit_with_training_s : usual_limit_s);
  if (request.time_limit_s < 1) given.refuse("time-limit", "no job ends in no time");
  if (request.time_limit_s > max_limit_s) given.refuse("time-limit", "expected at most a year");
  request.tune_time_s = tune_time(request.time_limit_s, given);
  if (given.has("job-name")) request.job_name = directive_word("job-name", given);
  request.account = directive_word("account", given);
  request.queue = directive_word("queue", given);
  request.launch = given.text("launch").value_or("");
  if (given.has("launch") && request.launch.find_first_not_of(' ') == std::string::npos)
    given.refuse("launch", "expected the words that start ranks, such as \"srun --mpi=pmix\"");
  request.directives = directives_of(given);
  request.modules = given.all("module");
  request.job_words = job_words_of(given);
  return request;
}

}  // namespace dstune
