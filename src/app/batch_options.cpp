#include "batch_options.hpp"

#include <utility>

namespace dstune {
namespace {

OptionRow of_batch(std::string name, std::string form, ValueKind kind, std::string words) {
  OptionRow row;
  row.name = std::move(name);
  row.form = std::move(form);
  row.help = std::move(words);
  row.kind = kind;
  row.commands = {Command::batch};
  return row;
}

OptionRow repeated_of_batch(std::string name, std::string form, std::string words) {
  OptionRow row = of_batch(std::move(name), std::move(form), ValueKind::text, std::move(words));
  row.repeats = true;
  row.help += "; may repeat";
  return row;
}

}  // namespace

std::vector<OptionRow> batch_option_rows() {
  using enum ValueKind;
  return {
      of_batch("tasks-per-node", "N", number,
               "ranks on a node of the batch job; default: one for each GPU"),
      of_batch("cpus-per-task", "N", number, "cores of a rank of the batch job; default 4"),
      of_batch("requeue", "N", number,
               "how often the batch job is queued again when its time ends; default 0"),
      of_batch("then-train", "", none,
               "go on with the training in the batch job: dstune.training_command with the answer"),
      of_batch("tune-time", "DURATION", text,
               "longest time for tuning before --then-train; default 1h, at most half of the job"),
      of_batch("job-name", "NAME", text,
               "name of the batch job; default dstune-tune or dstune-tune-then-train"),
      of_batch("account", "NAME", text, "account that pays for the batch job"),
      of_batch("queue", "NAME", text, "queue of the batch job, in Slurm its partition"),
      repeated_of_batch("batch-option", "TEXT",
                        "further directive of the batch job, such as --constraint=a100"),
      of_batch(
          "launch", "COMMAND", text,
          "command that starts the ranks of the batch job, such as \"srun --mpi=pmix\"; $ranks "
          "is their number; default mpirun, in Flux \"flux run\""),
      repeated_of_batch("module", "NAME",
                        "module that the batch job loads; \"\" is none; default: the loaded ones"),
  };
}

}  // namespace dstune
