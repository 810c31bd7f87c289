#include "check_files.hpp"

#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/json.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/base/text.hpp"
#include "dstune/space/config_check.hpp"
#include "dstune/space/config_document.hpp"
#include "dstune/space/hosts.hpp"

namespace dstune {

namespace {

using Counts = std::array<int, 3>;  ///< by Severity

struct CheckedFile {
  std::string path;
  CheckedConfig config;
};

/// A file that can not be read is refused like what DeepSpeed refuses.
CheckedFile check_file(const std::string& path, const ConfigCheck& known) {
  CheckedFile file{path, {}};
  try {
    const ConfigFile read = read_config_file(path);
    file.config = check_config(read.document, known);
    for (const Problem& note : read.notes) file.config.findings.add(FindingKind::caution, note);
    file.config.findings.sort();
  } catch (const InputError& error) {
    file.config.release = known.release.value_or(newest_release);
    for (const Problem& problem : error.problems())
      file.config.findings.add(FindingKind::refused, problem);
  }
  return file;
}

Counts counts_of(const CheckedConfig& config) {
  Counts counts{};
  for (const Finding& finding : config.findings.all())
    ++counts.at(static_cast<std::size_t>(severity_of(finding)));
  return counts;
}

/// "2 errors, 1 note"
std::string counts_text(const Counts& counts) {
  std::vector<std::string> parts;
  for (const Severity severity : {Severity::error, Severity::warning, Severity::note})
    if (const int count = counts.at(static_cast<std::size_t>(severity)); count > 0)
      parts.push_back(format_count(count, std::string(to_text(severity))));
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool is_refused(const Counts& counts) {
  return counts.front() > 0;
}

/// As compilers print them, so that editors find the place.
std::string text_of(const CheckedFile& file) {
  std::string text;
  for (const Finding& finding : file.config.findings.all()) {
    const Problem& problem = finding.problem;
    const std::string line = problem.line > 0 ? fmt::format(":{}", problem.line) : "";
    const std::string pointer = problem.pointer.empty() ? "" : problem.pointer + ": ";
    text += fmt::format("{}{}: {}: {}{}\n", problem.file, line, to_text(severity_of(finding)),
                        pointer, problem.message);
  }
  const Counts counts = counts_of(file.config);
  const std::string said = counts_text(counts);
  text += fmt::format("{}: {}, judged for DeepSpeed {}{}{}\n", file.path,
                      is_refused(counts) ? "refused" : "taken", to_text(file.config.release),
                      said.empty() ? "" : ": ", said);
  return text;
}

json::Value json_of(const CheckedFile& file) {
  json::Value findings = json::Value::array();
  for (const Finding& finding : file.config.findings.all())
    findings.push_back({{"kind", to_text(finding.kind)},
                        {"severity", to_text(severity_of(finding))},
                        {"pointer", finding.problem.pointer},
                        {"line", finding.problem.line},
                        {"message", finding.problem.message}});
  const Counts counts = counts_of(file.config);
  return {{"file", file.path},
          {"deepspeed_version", to_text(file.config.release)},
          {"verdict", is_refused(counts) ? "refused" : "taken"},
          {"findings", std::move(findings)}};
}

/// The ranks that share a batch, where hosts or a number of GPUs are given.
std::optional<int> ranks_of(const JobOptions& job) {
  const MachineChoice& machine = job.overrides.machine;
  if (!job.hostfile) {
    if (job.host_filter)
      throw UsageError("--include and --exclude choose from a --hostfile: add it");
    if (!machine.gpus_per_node && !machine.num_nodes) return std::nullopt;
    return machine.gpus_per_node.value_or(1) * machine.num_nodes.value_or(1);
  }
  if (machine.gpus_per_node || machine.num_nodes)
    throw UsageError(
        "--hostfile has the nodes and their slots: leave --gpus-per-node and --nodes out");
  const Hostfile file = read_hostfile(*job.hostfile);
  std::size_t num_ranks = 0;
  for (const auto& ranks : select_ranks(job_of(file), file, job.host_filter))
    num_ranks += ranks.size();
  return static_cast<int>(num_ranks);
}

}  // namespace

ExitCode check_files(const CommandLine& line) {
  std::optional<int> num_ranks;
  try {
    num_ranks = ranks_of(line.job);
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) log::error(problem.text());
    return ExitCode::bad_input;
  }
  const Overrides& overrides = line.job.overrides;
  const ConfigCheck known{.release = overrides.deepspeed_version,
                          .python = overrides.python,
                          .data_parallel_ranks = num_ranks,
                          .is_on_cpus = line.job.backend == Backend::cpu,
                          .command = line.training_command};
  Counts total{};
  json::Value files = json::Value::array();
  for (const std::string& path : line.check_files) {
    const CheckedFile file = check_file(path, known);
    const Counts counts = counts_of(file.config);
    for (std::size_t index = 0; index < total.size(); ++index) total.at(index) += counts.at(index);
    if (line.job.json_output)
      files.push_back(json_of(file));
    else
      output() << text_of(file);
  }
  const bool is_bad = is_refused(total) || (line.is_strict && total.at(1) > 0);
  const ExitCode code = is_bad ? ExitCode::bad_input : ExitCode::ok;
  if (line.job.json_output)
    output() << json::ascii_text(
                    json::Value{{"files", std::move(files)}, {"exit_code", static_cast<int>(code)}})
             << '\n';
  return code;
}

}  // namespace dstune
