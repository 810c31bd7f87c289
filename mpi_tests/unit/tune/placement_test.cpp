#include "start/placement.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int cores_a_node = 8;

/// Ranks that may use all cores of their nodes, none of which anybody else uses.
std::vector<RankPlace> ranks_on(int nodes, int ranks_a_node) {
  std::vector<RankPlace> places;
  for (int node = 0; node < nodes; ++node) {
    for (int local = 0; local < ranks_a_node; ++local) {
      RankPlace place{.node = node,
                      .machine = node,
                      .host = "node" + std::to_string(node),
                      .host_cores = cores_a_node,
                      .host_processors = cores_a_node,
                      .job_cores = cores_a_node,
                      .host_memory_bytes = std::int64_t{256} << 30,
                      .kind = "a processor"};
      for (int core = 0; core < cores_a_node; ++core) place.cores.push_back(core);
      places.push_back(std::move(place));
    }
  }
  return places;
}

std::string gpu_name(int node, int number) {
  return "GPU-" + std::to_string(node) + "-" + std::to_string(number);
}

/// The same with a GPU a rank, all of which every rank of the node sees.
std::vector<RankPlace> gpu_ranks_on(int nodes, int ranks_a_node) {
  std::vector<RankPlace> places = ranks_on(nodes, ranks_a_node);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    RankPlace& place = places[rank];
    place.kind = "a GPU";
    place.looks_at_gpus = true;
    for (int gpu = 0; gpu < ranks_a_node; ++gpu) place.gpus.push_back(gpu_name(place.node, gpu));
    place.gpu = place.gpus[rank % static_cast<std::size_t>(ranks_a_node)];
  }
  return places;
}

std::vector<RankPlace> bound(std::vector<RankPlace> places, int cores_a_rank) {
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    places[rank].cores.clear();
    for (int core = 0; core < cores_a_rank; ++core)
      places[rank].cores.push_back(static_cast<int>(rank) * cores_a_rank + core);
  }
  return places;
}

const LaunchFacts by_mpirun{.launcher = Launcher::open_mpi};
const LaunchFacts in_slurm{.launcher = Launcher::srun, .batch = BatchSystem::slurm};

std::vector<std::string> texts_of(const std::vector<RankPlace>& places, const LaunchFacts& facts) {
  std::vector<std::string> texts;
  for (const PlacementFinding& finding : placement_findings(places, facts))
    texts.push_back(finding.text);
  return texts;
}

TEST(PlacementTest, NothingIsSaidOfRanksThatHaveTheirNodes) {
  for (const LaunchFacts& facts : {by_mpirun, in_slurm}) {
    EXPECT_THAT(texts_of(ranks_on(1, 1), facts), IsEmpty());
    EXPECT_THAT(texts_of(ranks_on(3, 4), facts), IsEmpty());
    EXPECT_THAT(texts_of(gpu_ranks_on(2, 4), facts), IsEmpty());
  }
  // More ranks than cores is not known to be a mistake.
  EXPECT_THAT(texts_of(ranks_on(1, 2 * cores_a_node), by_mpirun), IsEmpty());
  EXPECT_THAT(texts_of({}, by_mpirun), IsEmpty());
}

TEST(PlacementTest, RanksThatSeeOneGpuEachAreToldToSeeAll) {
  std::vector<RankPlace> places = gpu_ranks_on(2, 4);
  for (RankPlace& place : places) {
    place.gpus = {place.gpu};
    place.named_gpus = 1;
    place.given_gpus = 4;
  }
  EXPECT_THAT(texts_of(places, in_slurm),
              ElementsAre(AllOf(HasSubstr("one GPU of several on 2 of 2 nodes (node0 is one)"),
                                HasSubstr("--gpus-per-node=4 and srun --gpu-bind=none"))));
  EXPECT_THAT(texts_of(places, by_mpirun),
              ElementsAre(AllOf(HasSubstr("CUDA_VISIBLE_DEVICES"), Not(HasSubstr("srun")))));
  // Parts of GPUs have no peer access that could be lost.
  for (RankPlace& place : places) place.sees_part = true;
  EXPECT_THAT(texts_of(places, in_slurm), IsEmpty());
}

TEST(PlacementTest, OneGpuANodeHidesNothing) {
  std::vector<RankPlace> places = gpu_ranks_on(4, 1);
  for (RankPlace& place : places) place.named_gpus = 1;
  EXPECT_THAT(texts_of(places, in_slurm), IsEmpty());
}

TEST(PlacementTest, GpusThatDoNotAnswerAreNamed) {
  std::vector<RankPlace> places = gpu_ranks_on(2, 4);
  for (RankPlace& place : places) place.given_gpus = 4;
  places[5].gpus.pop_back();
  EXPECT_THAT(texts_of(places, in_slurm),
              ElementsAre(HasSubstr("see 3 of the 4 GPUs that Slurm names on node1. ")));
  places[5].named_gpus = 3;
  EXPECT_THAT(texts_of(places, in_slurm), IsEmpty()) << "its own variable names no more";
}

TEST(PlacementTest, WhereNoGpuAnswersTheReasonIsSaid) {
  std::vector<RankPlace> places = ranks_on(1, 2);
  for (RankPlace& place : places) {
    place.looks_at_gpus = true;
    place.named_gpus = 2;
  }
  LaunchFacts facts = by_mpirun;
  facts.gpu_refusal = "no GPU answers";
  EXPECT_THAT(texts_of(places, facts),
              ElementsAre(HasSubstr(
                  "0 of the 2 GPUs that CUDA_VISIBLE_DEVICES names on node0: no GPU answers. ")));
  // --backend cpu asks for none, and neither does an empty variable.
  for (RankPlace& place : places) place.named_gpus = 0;
  EXPECT_THAT(texts_of(places, facts), IsEmpty());
  for (RankPlace& place : places) {
    place.looks_at_gpus = false;
    place.given_gpus = 2;
    place.named_gpus = -1;
  }
  EXPECT_THAT(texts_of(places, facts), IsEmpty());
}

TEST(PlacementTest, RanksOfOneGpuAreCountedByItsName) {
  std::vector<RankPlace> places = gpu_ranks_on(2, 4);
  for (std::size_t rank = 4; rank < 8; ++rank) places[rank].gpu = gpu_name(1, rank < 6 ? 0 : 1);
  EXPECT_THAT(texts_of(places, by_mpirun),
              ElementsAre(AllOf(HasSubstr("4 ranks share 2 GPUs on node1"),
                                HasSubstr("mpirun -np 4 --map-by ppr:2:node"))));
  // A rank that only coordinates has none.
  places = gpu_ranks_on(1, 4);
  places[0].gpu.clear();
  places[0].kind.clear();
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty());
}

TEST(PlacementTest, GpusOfTheJobWithoutARankAreNamed) {
  std::vector<RankPlace> places = gpu_ranks_on(2, 1);
  for (RankPlace& place : places)
    for (int gpu = 1; gpu < 8; ++gpu) place.gpus.push_back(gpu_name(place.node, gpu));
  EXPECT_THAT(texts_of(places, in_slurm),
              ElementsAre(AllOf(HasSubstr("7 of the job's 8 GPUs on 2 of 2 nodes"),
                                HasSubstr("srun --nodes=2 --ntasks-per-node=8"))));
  // Outside of a job nobody has asked for them.
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty());
  // And they may be hidden from the rank.
  places = gpu_ranks_on(1, 1);
  places[0].given_gpus = 4;
  places[0].named_gpus = 1;
  EXPECT_THAT(texts_of(places, in_slurm), ElementsAre(HasSubstr("3 of the job's 4 GPUs on node0")));
}

TEST(PlacementTest, RanksThatAreBoundToOneCoreAreToldTheirShare) {
  const std::vector<RankPlace> places = bound(ranks_on(1, 2), 1);
  EXPECT_THAT(texts_of(places, by_mpirun),
              ElementsAre(AllOf(HasSubstr("one core each on node0"), HasSubstr("8 cores for 2"),
                                HasSubstr("measured speed is that of one core"),
                                HasSubstr("mpirun --map-by slot:PE=4 --bind-to core"))));
  EXPECT_THAT(texts_of(places, {.launcher = Launcher::hydra}),
              ElementsAre(HasSubstr("mpiexec -bind-to core:4")));
  EXPECT_THAT(texts_of(places, {}), ElementsAre(HasSubstr("Bind each rank to 4 cores")));
}

TEST(PlacementTest, OneCoreIsEnoughWhereTheJobHasNoMore) {
  EXPECT_THAT(texts_of(bound(ranks_on(1, cores_a_node), 1), by_mpirun), IsEmpty());
  EXPECT_THAT(texts_of(bound(ranks_on(1, cores_a_node - 2), 1), by_mpirun), IsEmpty());
  EXPECT_THAT(texts_of(bound(ranks_on(1, 2), 2), by_mpirun), IsEmpty());
  std::vector<RankPlace> places = bound(ranks_on(1, 2), 1);
  LaunchFacts asked = by_mpirun;
  asked.asks_one_thread = true;
  EXPECT_THAT(texts_of(places, asked), IsEmpty()) << "OMP_NUM_THREADS=1 asks for it";
  for (RankPlace& place : places) place.job_cores = 2;
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty()) << "the cgroup has no more";
}

// Its group of processes has its own cores alone.
TEST(PlacementTest, AStepOfSlurmHasAPartOfItsJobsCores) {
  std::vector<RankPlace> places = bound(ranks_on(1, 2), 1);
  for (RankPlace& place : places) place.job_cores = 2;
  LaunchFacts facts = in_slurm;
  facts.cpus_a_node = cores_a_node;
  EXPECT_THAT(texts_of(places, facts),
              ElementsAre(AllOf(HasSubstr("srun --cpus-per-task=4 --cpu-bind=cores"),
                                HasSubstr("SRUN_CPUS_PER_TASK"))));
  // Slurm may count hardware threads.
  facts.cpus_a_node = cores_a_node;
  for (RankPlace& place : places) place.host_processors = 2 * cores_a_node;
  EXPECT_THAT(texts_of(places, facts), ElementsAre(HasSubstr("--cpus-per-task=2")));
}

TEST(PlacementTest, RanksOfOneCoreTakeTurnsWhileOthersAreIdle) {
  std::vector<RankPlace> places = bound(ranks_on(1, 4), 1);
  places[3].cores = places[2].cores;
  EXPECT_THAT(texts_of(places, by_mpirun),
              ElementsAre(AllOf(HasSubstr("take turns on the same cores on node0"),
                                HasSubstr("3 of the job's 8 cores"), HasSubstr("slot:PE=2"))));
  for (RankPlace& place : places) place.job_cores = 3;
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty()) << "none is idle";
  for (RankPlace& place : places) {
    place.job_cores = 2;
    place.cores = {0};
  }
  EXPECT_THAT(texts_of(places, by_mpirun), ElementsAre(HasSubstr("mpirun --bind-to none")));
}

TEST(PlacementTest, NodesThatArePretendedShareTheirCores) {
  std::vector<RankPlace> places = ranks_on(8, 1);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    places[rank].machine = 0;
    places[rank].cores = {static_cast<int>(rank)};
  }
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty());
}

TEST(PlacementTest, APartOfANodeIsNotTheJobsAlone) {
  std::vector<RankPlace> places = ranks_on(1, 2);
  for (RankPlace& place : places) place.cores = {0, 1, 2, 3};
  LaunchFacts facts = in_slurm;
  facts.cpus_a_node = 4;
  const auto is_said = AllOf(HasSubstr("4 of 8 cores on node0"), HasSubstr("--exclusive"));
  EXPECT_THAT(texts_of(places, facts), ElementsAre(is_said));
  // Elsewhere the cgroup says it.
  for (RankPlace& place : places) place.job_cores = 4;
  EXPECT_THAT(texts_of(places, {.batch = BatchSystem::pbs}),
              ElementsAre(HasSubstr("place=scatter:excl")));
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty()) << "a container is no job";
  // A site keeps some for the system.
  for (RankPlace& place : places) place.job_cores = 7;
  facts.cpus_a_node = 7;
  EXPECT_THAT(texts_of(places, facts), IsEmpty());
}

TEST(PlacementTest, OthersThatComputeAreTold) {
  std::vector<RankPlace> places = ranks_on(3, 2);
  for (std::size_t rank = 2; rank < 6; ++rank) places[rank].load_beside = 5;
  EXPECT_THAT(texts_of(places, in_slurm),
              ElementsAre(AllOf(HasSubstr("on 2 of 3 nodes (node1 is one) already, in about 5"),
                                HasSubstr("--exclusive"))));
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty()) << "the summary has the load";
  // For an instant, or little of a large node.
  for (std::size_t rank = 2; rank < 6; rank += 2) places[rank].load_beside = 0;
  EXPECT_THAT(texts_of(places, in_slurm), IsEmpty());
  for (RankPlace& place : places) {
    place.load_beside = 5;
    place.host_cores = 128;
    place.job_cores = 128;
  }
  EXPECT_THAT(texts_of(places, in_slurm), IsEmpty());
}

TEST(PlacementTest, NodesThatDifferAreToldWithTheWayToOneKind) {
  std::vector<RankPlace> places = gpu_ranks_on(4, 2);
  places.pop_back();
  for (RankPlace& place : places) {
    if (place.node != 3) continue;
    place.job_cores = place.host_cores = 4;
    place.cores = {0, 1, 2, 3};
    place.host_memory_bytes /= 2;
    place.kind = "another GPU";
  }
  EXPECT_THAT(texts_of(places, by_mpirun),
              ElementsAre(AllOf(HasSubstr("ranks (1 to 2), cores (4 to 8), "
                                          "memory (128 GiB to 256 GiB), "
                                          "devices (a GPU; another GPU)"),
                                HasSubstr("as fast as its slowest node"),
                                HasSubstr("--include node0@node1@node2"))));
  LaunchFacts mixed = in_slurm;
  mixed.components = 2;
  EXPECT_THAT(texts_of(places, mixed), testing::Contains(HasSubstr("--het-group=0")));
  // It is left out already.
  for (RankPlace& place : places) place.is_left_out = place.node == 3;
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty());
}

TEST(PlacementTest, TheKindWithMostRanksIsKept) {
  std::vector<RankPlace> places = ranks_on(2, 3);
  places.erase(places.begin(), places.begin() + 2);
  places.front().host_memory_bytes /= 2;
  EXPECT_THAT(texts_of(places, by_mpirun), ElementsAre(HasSubstr("--include node1")));
}

TEST(PlacementTest, EqualNodesWithUnevenRanksAreTheLaunchers) {
  std::vector<RankPlace> places = ranks_on(2, 3);
  places.erase(places.begin(), places.begin() + 2);
  EXPECT_THAT(texts_of(places, by_mpirun),
              ElementsAre(AllOf(HasSubstr("ranks (1 to 3)"), HasSubstr("-np 4 --map-by ppr:2:node"),
                                Not(HasSubstr("--include")))));
}

TEST(PlacementTest, FewNodesOfAnotherKindAreExcluded) {
  std::vector<RankPlace> places = ranks_on(10, 1);
  places.back().job_cores = 6;
  EXPECT_THAT(texts_of(places, by_mpirun), ElementsAre(HasSubstr("--exclude node9")));
  places.back().job_cores = cores_a_node;
  places.back().host_memory_bytes -= std::int64_t{1} << 30;
  EXPECT_THAT(texts_of(places, by_mpirun), IsEmpty()) << "hosts of one kind differ by as much";
}

TEST(PlacementTest, AJobWithFewerRanksThanItsAllocationIsTold) {
  LaunchFacts facts{.launcher = Launcher::open_mpi, .batch = BatchSystem::slurm};
  facts.nodes = 4;
  facts.tasks = 16;
  EXPECT_THAT(texts_of(ranks_on(1, 4), facts),
              ElementsAre(AllOf(HasSubstr("4 ranks are on 1 of the job's 4 nodes"),
                                HasSubstr("mpirun -np 16 --map-by ppr:4:node"))));
  EXPECT_THAT(texts_of(ranks_on(4, 1), facts),
              ElementsAre(AllOf(HasSubstr("4 ranks are here, and Slurm has 16 tasks"),
                                HasSubstr("mpirun -np 16 --map-by ppr:4:node"))));
  EXPECT_THAT(texts_of(ranks_on(4, 4), facts), IsEmpty());
  EXPECT_THAT(texts_of(ranks_on(4, 8), facts), IsEmpty());
}

TEST(PlacementTest, ProcessesOfWhichEachIsAJobAreToldThatAlone) {
  LaunchFacts facts = in_slurm;
  facts.nodes = 2;
  facts.tasks = facts.step_tasks = 4;
  EXPECT_THAT(
      texts_of(ranks_on(1, 1), facts),
      ElementsAre(AllOf(HasSubstr("srun started 4 processes"), HasSubstr("srun --mpi=pmix"))));
  facts.nodes = 1;
  EXPECT_THAT(texts_of(ranks_on(1, 4), facts), IsEmpty());
}

}  // namespace
}  // namespace dstune
