#include "dstune/report/result_files.hpp"

#include <string_view>

#include "parts.hpp"

namespace dstune {
namespace {

std::string of_experiment(std::string_view name) {
  return "NAME/" + std::string(name);
}

}  // namespace

std::vector<ResultFile> result_files() {
  namespace name = file_name;
  const auto text = [](std::string_view file) { return std::string(file); };
  return {
      {text(name::optimal_config),
       "the answer, a DeepSpeed config; the best so far while the job runs"},
      {text(name::optimal_command), "the launch line of the training with it"},
      {text(name::training_arguments), "the arguments of Hugging Face's Trainer with it"},
      {text(name::optimal), "how fast it is, how sure that is, and what it cost"},
      {text(name::summary), "the tables that a job prints at its end"},
      {text(name::page), "all of it on one page, with figures"},
      {text(name::page_data), "the page's data"},
      {text(name::table), "a row for every member of the space"},
      {text(name::exit_status), "how the job ended: scripts should decide on this file"},
      {text(name::state), "the state of a running job"},
      {text(name::verify_slurm), "a Slurm job that runs the best few in DeepSpeed itself"},
      {text(name::verify_pbs), "the same for PBS"},
      {text(name::verification), "the folder with the results of these jobs"},
      {text(name::validation), "the finalists, which were measured again"},
      {text(name::environment), "machine, versions, options and limits of the job"},
      {text(name::library_choices), "the GPU libraries' candidates that were timed"},
      {text(name::journal), "every result; a job resumes from it"},
      {text(name::lock), "who writes in the folder now"},
      {text(name::manifest), "which files are dstune-mpi's: it deletes no other"},
      {of_experiment(name::experiment), "an experiment, as DeepSpeed's autotuner writes it"},
      {of_experiment(name::config), "its DeepSpeed config"},
      {of_experiment(name::metrics), "all that it measured"},
      {of_experiment(name::verified), "the same by the user's own training, with --verify"},
      {of_experiment(name::memory_text), "memory over a step, of the winner"},
      {of_experiment(name::traceback), "the place where Python failed"},
  };
}

}  // namespace dstune
