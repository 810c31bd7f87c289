// What a rank makes of the others, without processes and without MPI.
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "watch/heartbeats.hpp"
#include "watch/launch.hpp"
#include "watch/liveness.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

bool never() {
  return false;
}
bool always() {
  return true;
}

TEST(LivenessTest, WhoBeatsLivesAndNobodyAsksForItsProcess) {
  Liveness peer;
  for (std::uint64_t beats = 1; beats < 200; ++beats)
    EXPECT_EQ(peer.look(beats, always), Liveness::Finding::lives);
}

TEST(LivenessTest, WhoIsQuietAndHasNoProcessIsGone) {
  Liveness peer;
  EXPECT_EQ(peer.look(5, always), Liveness::Finding::lives);
  EXPECT_EQ(peer.look(5, always), Liveness::Finding::lives) << "two threads do not look in step";
  EXPECT_EQ(peer.look(5, always), Liveness::Finding::gone);
}

TEST(LivenessTest, WhoIsQuietForLongIsSilentThoughItsProcessIsThere) {
  Liveness peer;
  peer.look(5, never);
  for (int look = 1; look < Liveness::silent_looks; ++look)
    EXPECT_EQ(peer.look(5, never), Liveness::Finding::lives) << look;
  EXPECT_EQ(peer.look(5, never), Liveness::Finding::silent);
  EXPECT_EQ(peer.look(6, never), Liveness::Finding::lives) << "it was stopped and goes on";
  EXPECT_EQ(peer.look(6, never), Liveness::Finding::lives);
}

TEST(LivenessTest, WhoIsQuietIsNotWaitedForAtTheEnd) {
  Liveness peer;
  EXPECT_FALSE(peer.is_suspect()) << "nobody has looked";
  for (int look = 0; look < Liveness::suspect_looks; ++look) {
    peer.look(5, never);
    EXPECT_FALSE(peer.is_suspect()) << look;
  }
  peer.look(5, never);
  EXPECT_TRUE(peer.is_suspect());
  peer.look(6, never);
  EXPECT_FALSE(peer.is_suspect());
}

TEST(AfterLossTest, AtTheStartAnyRankIsNeeded) {
  EXPECT_EQ(code_after_loss(JobPhase::starting, 75, 3, {.how = "died"}), 75);
  EXPECT_EQ(code_after_loss(JobPhase::starting, 75, 0, {.how = "died"}), 75);
  EXPECT_EQ(code_after_loss(JobPhase::checking, 75, 3, {.how = "does not answer"}), 6);
}

TEST(AfterLossTest, InTheSearchRankZeroIs) {
  EXPECT_EQ(code_after_loss(JobPhase::searching, 75, 3, {.how = "died"}), std::nullopt);
  EXPECT_EQ(code_after_loss(JobPhase::searching, 75, 0, {.how = "died"}), 75);
}

TEST(AfterLossTest, AtTheEndTheCodeIsDecided) {
  EXPECT_EQ(code_after_loss(JobPhase::ending, 0, 3, {.how = "died"}), 0);
  EXPECT_EQ(code_after_loss(JobPhase::ending, 4, 0, {.how = "does not answer"}), 4);
  EXPECT_EQ(code_after_loss(JobPhase::ending, 0, 3, {.how = "has left", .exit_code = 0}),
            std::nullopt)
      << "it was faster";
}

TEST(AfterLossTest, WhatARankLeftWithIsWhatOthersLeaveWithOnceMessagesHaveArrived) {
  const LostRank just_now{.how = "has left", .exit_code = 4, .is_gone = true, .num_looks = 1};
  LostRank long_ago = just_now;
  long_ago.num_looks = looks_for_messages;
  EXPECT_EQ(code_after_loss(JobPhase::searching, 75, 0, just_now), std::nullopt);
  EXPECT_EQ(code_after_loss(JobPhase::searching, 75, 0, long_ago), 4);
  EXPECT_EQ(code_after_loss(JobPhase::starting, 75, 2, long_ago), 4);
  EXPECT_EQ(code_after_loss(JobPhase::searching, 75, 2, long_ago), std::nullopt);
  long_ago.exit_code = 0;
  EXPECT_EQ(code_after_loss(JobPhase::starting, 75, 2, long_ago), std::nullopt)
      << "it had nothing to do with the others";
  EXPECT_EQ(code_after_loss(JobPhase::searching, 75, 0, long_ago), 0);
}

TEST(SilenceTest, IsOfRoundsWithoutAMessageAndToldOnce) {
  Silence silence({1, 2});
  for (int round = 0; round < Silence::max_rounds; ++round) {
    silence.hear(1);
    silence.hear(9);  // nobody asked
    EXPECT_THAT(silence.end_round(), IsEmpty());
  }
  silence.hear(1);
  EXPECT_THAT(silence.end_round(), ElementsAre(2));
  silence.hear(2);
  EXPECT_THAT(silence.end_round(), IsEmpty());
}

Launch launch_of(const std::map<std::string, const char*>& variables) {
  return find_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  });
}

TEST(LaunchTest, WithoutALauncherThereIsNoJob) {
  EXPECT_EQ(launch_of({}).key, "");
  EXPECT_EQ(launch_of({{"OMPI_COMM_WORLD_RANK", "many"}}).key, "");
}

TEST(LaunchTest, OpenMpiTellsRankPlaceAndJob) {
  const std::map<std::string, const char*> variables{{"OMPI_COMM_WORLD_RANK", "3"},
                                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                     {"PMIX_NAMESPACE", "123"},
                                                     {"PMIX_SERVER_URI2", "123.0;tcp4://host:1"}};
  const Launch launch = launch_of(variables);
  EXPECT_EQ(launch.world_rank, 3);
  EXPECT_EQ(launch.ranks_here, 4);
  EXPECT_FALSE(launch.outlives_ranks);
  auto other = variables;
  other["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_EQ(launch_of(other).key, launch.key) << "of the same job";
  other["PMIX_SERVER_URI2"] = "123.0;tcp4://host:2";
  EXPECT_NE(launch_of(other).key, launch.key);
  other["OMPI_MCA_orte_enable_recovery"] = "1";
  EXPECT_TRUE(launch_of(other).outlives_ranks);
}

TEST(LaunchTest, HydraTellsRankAndPlaceAndItsDaemonIsTheJob) {
  const Launch launch = launch_of({{"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(launch.world_rank, 1);
  EXPECT_EQ(launch.ranks_here, 2);
  EXPECT_NE(launch.key, "");
}

}  // namespace
}  // namespace dstune
