#include "dstune/report/batch_script.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr BatchSystem all_systems[] = {BatchSystem::slurm, BatchSystem::pbs, BatchSystem::lsf,
                                       BatchSystem::flux};

BatchJob small_job() {
  BatchJob job;
  job.program = "/opt/dstune/bin/dstune-mpi";
  job.space = "/home/user/space.json";
  job.resources = {.nodes = 2, .tasks_per_node = 8, .cpus_per_task = 4};
  return job;
}

/// The example of the quickstart, from a checkout, with every setting left to variables.
BatchJob shipped_job(bool trains) {
  BatchJob job = small_job();
  job.program = "build/release/dstune-mpi";
  job.space = "scripts/spaces/quickstart.json";
  if (!trains) return job;
  job.resources.job_name = "dstune-tune-then-train";
  job.resources.time_limit_s = 24 * 3600;
  job.tuning_before_training_s = 3600;
  return job;
}

TEST(BatchScript, IsTheOneThatIsShipped) {
  const bool is_updated = std::getenv("DSTUNE_UPDATE_GOLDEN") != nullptr;
  const std::pair<const char*, const char*> names[] = {
      {"slurm", "sbatch"}, {"pbs", "pbs"}, {"lsf", "lsf"}, {"flux", "flux"}};
  for (const auto& [folder, ending] : names) {
    for (const bool trains : {false, true}) {
      const std::string name =
          std::string("scripts/") + folder + "/" + (trains ? "tune-then-train." : "tune.") + ending;
      BatchJob job = shipped_job(trains);
      job.file_name = name;
      const std::string script = batch_script(job, *batch_system_of(folder));
      const std::filesystem::path path = std::filesystem::path(DSTUNE_CHECKOUT) / name;
      if (is_updated) {
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << script;
        std::filesystem::permissions(path, std::filesystem::perms(0755));
      }
      std::ifstream file(path);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), script)
          << name << ": DSTUNE_UPDATE_GOLDEN=1 writes it anew";
    }
  }
}

TEST(BatchScript, AsksForNodesTasksCoresAndTime) {
  BatchJob job = small_job();
  job.resources.job_name = "mine";
  job.resources.gpus_per_node = 8;
  job.resources.time_limit_s = 5430;
  job.resources.account = "proj-1";
  job.resources.queue = "big";
  job.resources.directives = {"--one", "--two=2 3"};
  const std::string slurm = batch_script(job, BatchSystem::slurm);
  for (const char* option :
       {"--job-name=mine", "--nodes=2", "--ntasks-per-node=8", "--cpus-per-task=4",
        "--time=01:30:30", "--account=proj-1", "--partition=big", "--gpus-per-node=8", "--one",
        "--two=2 3", "--signal=B:USR1@180", "--requeue", "--open-mode=append"})
    EXPECT_THAT(slurm, HasSubstr(std::string("\n#SBATCH ") + option + "\n"));
  const std::string pbs = batch_script(job, BatchSystem::pbs);
  for (const char* option :
       {"-N mine", "-l select=2:ncpus=32:mpiprocs=8:ompthreads=4:ngpus=8", "-l walltime=01:30:30",
        "-A proj-1", "-q big", "--one", "-l place=scatter:excl"})
    EXPECT_THAT(pbs, HasSubstr(std::string("\n#PBS ") + option + "\n"));
  const std::string lsf = batch_script(job, BatchSystem::lsf);
  for (const char* option : {"-J mine", "-n 16", "-R \"span[ptile=8]\"", "-gpu \"num=8\"",
                             "-W 1:31", "-P proj-1", "-q big", "--one"})
    EXPECT_THAT(lsf, HasSubstr(std::string("\n#BSUB ") + option + "\n"));
  const std::string flux = batch_script(job, BatchSystem::flux);
  for (const char* option :
       {"--job-name=mine", "--nodes=2", "--nslots=16", "--cores-per-slot=4", "--gpus-per-slot=1",
        "--time-limit=5430s", "--bank=proj-1", "--queue=big", "--one"})
    EXPECT_THAT(flux, HasSubstr(std::string("\n# flux: ") + option + "\n"));
  EXPECT_THAT(flux, HasSubstr("'flux run -N $nodes -n $ranks -c 4 -g 1'"));
  for (const BatchSystem system : all_systems) {
    const std::string script = batch_script(job, system);
    EXPECT_THAT(script, testing::StartsWith("#!/bin/bash\n"));
    EXPECT_THAT(script, HasSubstr("\nasked_s=5430\n"));
    EXPECT_THAT(script, Not(testing::ContainsRegex("@[A-Z_]+@")));
  }
}

TEST(BatchScript, OffersGpusWhereNobodyKnowsOfAny) {
  BatchJob job = small_job();
  EXPECT_THAT(batch_script(job, BatchSystem::slurm), HasSubstr("\n##SBATCH --gpus-per-node=8 "));
  EXPECT_THAT(batch_script(job, BatchSystem::pbs), HasSubstr("add  :ngpus=8  to"));
  EXPECT_THAT(batch_script(job, BatchSystem::lsf), HasSubstr("\n##BSUB -gpu \"num=8\" "));
  EXPECT_THAT(batch_script(job, BatchSystem::flux), HasSubstr("--gpus-per-slot=1  to"));
  job.resources.gpus_per_node = 0;
  for (const BatchSystem system : all_systems)
    EXPECT_THAT(batch_script(job, system),
                Not(testing::ContainsRegex("gpu[-\" ]|gpus-per|ngpus=")));
}

TEST(BatchScript, WarnsAtTheEndOfAShortJobAlone) {
  BatchJob job = small_job();
  job.resources.time_limit_s = 600;
  EXPECT_THAT(batch_script(job, BatchSystem::slurm), HasSubstr("--signal=B:USR1@30\n"));
  job.resources.time_limit_s = 60;
  EXPECT_THAT(batch_script(job, BatchSystem::slurm), HasSubstr("--signal=B:USR1@10\n"));
}

TEST(BatchScript, HandsOptionsOnAsTheyAre) {
  BatchJob job = small_job();
  job.options = {"--metric", "latency", "--model", "my models/it's\nnew", "--include", "n1:0,1@n2"};
  for (const BatchSystem system : all_systems)
    EXPECT_THAT(batch_script(job, system),
                HasSubstr("arguments=(--results-dir \"$RESULTS_DIR\" --metric latency --model "
                          "'my models/it'\\''s\nnew' --include n1:0,1@n2)\n"));
}

TEST(BatchScript, KeepsNamesAndPathsOutOfTheShellsHands) {
  BatchJob job = small_job();
  job.program = "/a b/$(x)/dstune-mpi";
  job.space = "/a\nrm -r /'b'}";
  job.results_dir = "`r`";
  job.file_name = "a\nrm -r b";
  for (const BatchSystem system : all_systems) {
    const std::string script = batch_script(job, system);
    EXPECT_THAT(script, HasSubstr("DSTUNE_MPI=${DSTUNE_MPI:-'/a b/$(x)/dstune-mpi'}\n"));
    EXPECT_THAT(script, HasSubstr("SPACE=${SPACE:-'/a\nrm -r /'\\''b'\\''}'}\n"));
    EXPECT_THAT(script, HasSubstr("RESULTS_DIR=${RESULTS_DIR:-'`r`'}\n"));
    EXPECT_THAT(script, HasSubstr("'a?rm -r b'"));
  }
}

TEST(BatchScript, RefusesDirectivesThatAreNone) {
  for (const BatchSystem system : all_systems) {
    BatchJob job = small_job();
    job.resources.directives = {"-a\nrm -r b"};
    EXPECT_THROW(batch_script(job, system), LogicError);
    job.resources.directives = {""};
    EXPECT_THROW(batch_script(job, system), LogicError);
    job.resources.directives.clear();
    job.resources.account = "two words";
    EXPECT_THROW(batch_script(job, system), LogicError);
  }
  EXPECT_EQ(directive_violation("--constraint=\"a&b\""), "");
  EXPECT_NE(directive_word_violation("a\"b"), "");
  EXPECT_EQ(directive_word_violation("m1234_g@site"), "");
}

TEST(BatchScript, FindsTheEnvironmentAgain) {
  BatchJob job = small_job();
  EXPECT_THAT(batch_script(job, BatchSystem::slurm), HasSubstr("\n# module load gcc openmpi\n"));
  job.environment = {.modules = {"gcc/12.2", "open mpi/4"},
                     .python_environment = "/venvs/my ds",
                     .conda_environment = "/conda/envs/ds",
                     .conda_program = "/conda/bin/conda"};
  const std::string script = batch_script(job, BatchSystem::slurm);
  EXPECT_THAT(script, HasSubstr("\nmodule load gcc/12.2 'open mpi/4' || exit 1\n"));
  EXPECT_THAT(script, HasSubstr("\nsource '/venvs/my ds/bin/activate' || exit 1\n"));
  EXPECT_THAT(script, HasSubstr("/conda/bin/conda shell.bash hook"));
  EXPECT_THAT(script, HasSubstr("conda activate /conda/envs/ds || exit 1\n"));
  job.environment.conda_program.clear();
  EXPECT_THAT(batch_script(job, BatchSystem::slurm),
              HasSubstr("\nexport PATH=/conda/envs/ds/bin:$PATH\n"));
}

TEST(BatchScript, IsQueuedAgainWhereThatIsAskedFor) {
  BatchJob job = small_job();
  job.max_restarts = 3;
  for (const BatchSystem system : all_systems)
    EXPECT_THAT(batch_script(job, system),
                HasSubstr("REQUEUE=${REQUEUE:-yes}\nMAX_RESTARTS=${MAX_RESTARTS:-3}\n"));
  EXPECT_THAT(batch_script(small_job(), BatchSystem::lsf), HasSubstr("REQUEUE=${REQUEUE:-no}\n"));
  EXPECT_THAT(batch_script(job, BatchSystem::slurm), HasSubstr("scontrol requeue"));
  EXPECT_THAT(batch_script(job, BatchSystem::pbs), HasSubstr(" qsub -V "));
  EXPECT_THAT(batch_script(job, BatchSystem::lsf), HasSubstr("brequeue \"$LSB_JOBID\""));
  EXPECT_THAT(batch_script(job, BatchSystem::flux), HasSubstr("flux --parent job submit"));
}

TEST(BatchScript, StartsRanksAsAsked) {
  BatchJob job = small_job();
  job.launch = "srun --mpi=pmix -n \"$ranks\"";
  EXPECT_THAT(batch_script(job, BatchSystem::slurm),
              HasSubstr("LAUNCH=${LAUNCH:-'srun --mpi=pmix -n \"$ranks\"'}\n"));
}

TEST(BatchScript, TrainsBehindTheTuning) {
  BatchJob job = small_job();
  for (const BatchSystem system : all_systems)
    EXPECT_THAT(batch_script(job, system), Not(HasSubstr("TUNE_TIME")));
  job.tuning_before_training_s = 1800;
  for (const BatchSystem system : all_systems) {
    const std::string script = batch_script(job, system);
    EXPECT_THAT(script, HasSubstr("TUNE_TIME=${TUNE_TIME:-30m}\n"));
    EXPECT_THAT(script, HasSubstr("time_limit \"$TUNE_TIME\""));
    EXPECT_THAT(script, HasSubstr("cmd_optimal.txt"));
  }
}

}  // namespace
}  // namespace dstune
