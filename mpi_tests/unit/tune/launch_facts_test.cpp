#include "start/launch_facts.hpp"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "folder_test.hpp"

namespace dstune {
namespace {

using Variables = std::map<std::string, std::string>;

LookUp of(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(LaunchFactsTest, NothingIsKnownWhereNobodySaysAnything) {
  const LaunchFacts facts = find_launch_facts(of({}));
  EXPECT_EQ(facts.launcher, Launcher::unknown);
  EXPECT_EQ(facts.batch, BatchSystem::none);
  EXPECT_EQ(facts.nodes + facts.tasks + facts.step_tasks + facts.cpus_a_node, 0);
}

TEST(LaunchFactsTest, SlurmTellsNodesTasksAndCores) {
  Variables said{{"SLURM_JOB_ID", "7"},          {"SLURM_JOB_NUM_NODES", "3"},
                 {"SLURM_NTASKS", "16"},         {"SLURM_JOB_CPUS_PER_NODE", "16(x2),32"},
                 {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_PROCID", "0"}};
  const LaunchFacts facts = find_launch_facts(of(said));
  EXPECT_EQ(facts.launcher, Launcher::srun);
  EXPECT_EQ(facts.batch, BatchSystem::slurm);
  EXPECT_EQ(facts.nodes, 3);
  EXPECT_EQ(facts.tasks, 16);
  EXPECT_EQ(facts.step_tasks, 16);
  EXPECT_EQ(facts.cpus_a_node, 32);
  // mpirun starts its ranks by srun, too.
  said["MPI_LOCALNRANKS"] = "4";
  EXPECT_EQ(find_launch_facts(of(said)).launcher, Launcher::hydra);
  said["OMPI_COMM_WORLD_SIZE"] = "16";
  EXPECT_EQ(find_launch_facts(of(said)).launcher, Launcher::open_mpi);
}

TEST(LaunchFactsTest, ComponentsOfAJobAreAddedUp) {
  const LaunchFacts facts = find_launch_facts(of({{"SLURM_JOB_ID", "7"},
                                                  {"SLURM_HET_SIZE", "2"},
                                                  {"SLURM_JOB_NUM_NODES", "1"},
                                                  {"SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"},
                                                  {"SLURM_JOB_NUM_NODES_HET_GROUP_1", "4"},
                                                  {"SLURM_NTASKS_HET_GROUP_0", "2"},
                                                  {"SLURM_NTASKS_HET_GROUP_1", "8"}}));
  EXPECT_EQ(facts.components, 2);
  EXPECT_EQ(facts.nodes, 5);
  EXPECT_EQ(facts.tasks, 10);
}

class LaunchFilesTest : public test::FolderTest {};

TEST_F(LaunchFilesTest, PbsNamesItsNodesInAFile) {
  const std::string path = write("nodes", "node1\nnode1\nnode2\nnode2\n");
  const LaunchFacts facts =
      find_launch_facts(of({{"PBS_JOBID", "7.server"}, {"PBS_NODEFILE", path}, {"NCPUS", "4"}}));
  EXPECT_EQ(facts.batch, BatchSystem::pbs);
  EXPECT_EQ(facts.nodes, 2);
  EXPECT_EQ(facts.tasks, 4);
  EXPECT_EQ(facts.cpus_a_node, 4);
  EXPECT_EQ(find_launch_facts(of({{"PBS_JOBID", "7"}, {"PBS_NODEFILE", "/absent"}})).nodes, 0);
}

TEST(LaunchFactsTest, TheLaunchNodeOfLsfRunsNoRank) {
  const auto nodes = [](const char* hosts) {
    return find_launch_facts(of({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", hosts}})).nodes;
  };
  EXPECT_EQ(nodes("node1 20 node2 20"), 2);
  EXPECT_EQ(nodes("launch 1 node1 42 node2 42"), 2);
  EXPECT_EQ(nodes("node1 1 node2 1"), 2);
  EXPECT_EQ(nodes(""), 0);
}

TEST(LaunchFactsTest, TheInnerBatchSystemCounts) {
  EXPECT_EQ(find_batch_system(of({{"SLURM_JOB_ID", "7"}, {"FLUX_JOB_ID", "f1"}})),
            BatchSystem::flux);
  EXPECT_EQ(find_batch_system(of({{"SLURM_JOB_ID", ""}})), BatchSystem::none);
  EXPECT_STREQ(to_text(BatchSystem::lsf), "LSF");
}

TEST(LaunchFactsTest, GpusAreCountedAsTheirVariablesSay) {
  EXPECT_EQ(given_gpus(of({{"SLURM_GPUS_ON_NODE", "4"}, {"SLURM_GPUS_PER_NODE", "8"}})), 4);
  EXPECT_EQ(given_gpus(of({{"SLURM_GPUS_PER_NODE", "a100:2,v100:1"}})), 3);
  EXPECT_EQ(given_gpus(of({})), 0);
  EXPECT_EQ(named_gpus(nullptr), -1);
  EXPECT_EQ(named_gpus(""), 0);
  EXPECT_EQ(named_gpus("NoDevFiles"), 0);
  EXPECT_EQ(named_gpus("0, 3"), 2);
  EXPECT_EQ(named_gpus("2,-1,3"), 1);
  EXPECT_EQ(named_gpus("GPU-0123,GPU-4567"), 2);
  EXPECT_EQ(named_gpus("MIG-0123,MIG-4567"), -1);
}

}  // namespace
}  // namespace dstune
