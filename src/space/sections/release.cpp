#include "sections/release.hpp"

#include <filesystem>

#include <fmt/format.h>

namespace dstune {

void decide_release(std::optional<PythonEnvironment> python, const json::Node& place,
                    SectionTarget& target) {
  JobSpec& job = *target.job;
  const WorkloadSpec* const engine = job.engine();
  if (python && engine != nullptr) {
    if (engine->options.contains("python"))
      python->interpreter = std::filesystem::absolute(
          path_from(job.folder, engine->options["python"].get<std::string>()));
    // The job becomes this one; one that is named and missing is told when it starts.
    if (const FoundPython job_python = find_python(*python); job_python.problem.empty())
      python->interpreter = job_python.path;
  }
  Version& version = job.deepspeed_version;
  const bool is_named = !job.deepspeed_source.empty();
  try {
    if (const auto found = is_named || !python ? std::nullopt : find_deepspeed(*python)) {
      version = found->version;
      job.deepspeed_source = fmt::format("installed in {}", found->folder);
      if (!found->note.empty()) job.warnings.push_back("DeepSpeed " + found->note);
    }
  } catch (const Error& error) {
    target.problems->add(place.problem(fmt::format(
        "{}: write the one that will train as \"deepspeed_version\" in the section dstune, or give "
        "--deepspeed-version",
        error.what())));
  }
  if (job.deepspeed_source.empty())
    job.deepspeed_source = fmt::format(
        "the newest that dstune-mpi knows, since none is {}; --deepspeed-version names "
        "another",
        python ? "installed" : "named");
  if (version > newest_release)
    job.warnings.push_back(
        fmt::format("DeepSpeed {} is newer than all that dstune-mpi knows: it is taken for {}",
                    to_text(version), to_text(newest_release)));
  else if (version < oldest_release)
    job.warnings.push_back(
        fmt::format("DeepSpeed {} is older than all that dstune-mpi knows: it is taken for {}, "
                    "whose keys it may refuse",
                    to_text(version), to_text(oldest_release)));
  else if (version != known_release(version))
    job.assumptions.push_back(fmt::format("DeepSpeed {} has the keys and defaults of {}",
                                          to_text(version), to_text(known_release(version))));
}

KeyUse key_use_of(const JobSpec& job, bool is_on_cpus) {
  return {.reads_checkpointing = job.target.checkpointing == TargetCheckpointing::deepspeed,
          .is_on_cpu = is_on_cpus};
}

void add_section_problems(const json::Problems& found, SectionTarget& target) {
  for (const Problem& problem : found.all())
    if (problem.is_unknown_key && target.job->allows_unknown)
      target.job->warnings.push_back(
          fmt::format("{} is no key that dstune-mpi knows: it has no effect", problem.pointer));
    else
      target.problems->add(problem);
}

}  // namespace dstune
