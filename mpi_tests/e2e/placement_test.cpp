// Places of ranks that the job warns of, and others of which it says nothing.
#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

#include "results.hpp"
#include "spaces.hpp"

namespace dstune::e2e {
namespace {

class PlacementTest : public JobTest {
 protected:
  PlacementTest() { job_.write("space.json", synthetic_space({1}, {1, 2})); }

  void expect_said_once(const Ended& ended, const std::vector<std::string>& parts) const {
    expect_exit(job_, ended, done);
    for (const std::string& part : parts) EXPECT_EQ(count_of(ended.err, part), 1) << part << ended;
  }
  /// The lines of environment.json.
  [[nodiscard]] std::vector<std::string> kept() const {
    return job_.read_json(results + "environment.json")["placement"];
  }
};

// Open MPI's binding; Hydra has another word for it.
const std::map<std::string, std::string> bound_to_core{
    {"OMPI_MCA_hwloc_base_binding_policy", "core"}, {"OMP_NUM_THREADS", ""}};

bool can_bind() {
  return !recovery_words().empty() && std::thread::hardware_concurrency() > 1;
}

TEST_F(PlacementTest, RanksThatMayUseAllCoresAreNotNamed) {
  ranks_ = 4;
  const Ended ended = run_with({{"OMP_NUM_THREADS", ""}});
  expect_exit(job_, ended, done);
  EXPECT_TRUE(kept().empty()) << ended;
}

TEST_F(PlacementTest, ARankWithOneOfTheCoresIsNamed) {
  if (!can_bind()) GTEST_SKIP() << "no core would be left, or this is not Open MPI";
  ranks_ = 1;
  const std::string words = "ranks have one core each on ";
  expect_said_once(run_with(bound_to_core), {words, "mpirun --map-by slot:PE="});
  ASSERT_EQ(kept().size(), 1U);
  EXPECT_EQ(count_of(kept().front(), words), 1);
  // Whoever asks for one thread has it.
  std::map<std::string, std::string> asked = bound_to_core;
  asked["OMP_NUM_THREADS"] = "1";
  EXPECT_EQ(count_of(run_with(asked, {"--overwrite"}).err, words), 0);
}

TEST_F(PlacementTest, TheCheckNotesItToo) {
  if (!can_bind()) GTEST_SKIP() << "no core would be left, or this is not Open MPI";
  const Ended ended = job_.run({.ranks = 1,
                                .args = {"check", "--backend", "cpu", "--format", "json"},
                                .environment = bound_to_core});
  const std::vector<std::string> notes = Json::parse(ended.out)["notes"];
  EXPECT_EQ(std::ranges::count_if(notes,
                                  [](const std::string& note) {
                                    return count_of(note, "ranks have one core each on ") == 1;
                                  }),
            1)
      << ended;
}

TEST_F(PlacementTest, NodesOfOneKindAreNamed) {
  ranks_ = 4;
  const std::map<std::string, std::string> uneven{{"DSTUNE_PRETEND_HOSTS", "node-a:1,node-b:3"}};
  expect_said_once(run_with(uneven), {"nodes differ in ranks (1 to 3): "});
  EXPECT_EQ(count_of(run_with(uneven, {"--overwrite", "--include", "node-b"}).err, "nodes differ"),
            0);
}

// Variables that Slurm would set; mpirun looks at others.
TEST_F(PlacementTest, APartOfAnAllocationIsNamed) {
  const Ended ended = run_with({{"SLURM_JOB_ID", "7"},
                                {"SLURM_JOB_NUM_NODES", "4"},
                                {"SLURM_NTASKS", "16"},
                                {"SLURM_JOB_PARTITION", "gpu"}});
  expect_said_once(ended, {"2 ranks are on 1 of the job's 4 nodes", "--map-by ppr:4:node",
                           "Slurm does not tell this job its time limit"});
  EXPECT_EQ(job_.read_json(results + "environment.json")["variables"]["SLURM_JOB_PARTITION"],
            "gpu");
}

TEST_F(PlacementTest, AGroupThatDoesNotFitNamesTheRealLack) {
  Json space = synthetic_space({1}, {1});
  space["dstune"]["resources"]["num_nodes"] = 2;
  job_.write("space.json", space);
  expect_refused(job_, command(), bad_input,
                 {"the job has one node (2 ranks): ask for 2 nodes", "or write num_nodes 1"});
  job_.write("space.json", synthetic_space({2}, {1}));
  expect_refused(job_, command({"--coordinator", "dedicated"}), bad_input,
                 {"(1 rank on one node beside rank 0, which only coordinates): start 3 on it"});
}

}  // namespace
}  // namespace dstune::e2e
