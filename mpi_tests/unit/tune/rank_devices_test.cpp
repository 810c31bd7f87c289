#include "start/rank_devices.hpp"

#include <gtest/gtest.h>

namespace dstune {
namespace {

RankDevice gpu(const std::string& uuid) {
  return {.description = "cuda (a GPU)",
          .memory_bytes = 600,
          .backend = BackendKind::cuda,
          .gpu = uuid};
}

TEST(RankDevicesTest, RanksOfOneGpuShareItsMemoryAndSaySo) {
  std::vector<RankDevice> devices{gpu("a"), gpu("b"), gpu("a"), gpu("a")};
  share_gpus(devices);
  for (const std::size_t rank : {0, 2, 3}) {
    EXPECT_EQ(devices[rank].memory_bytes, 200);
    EXPECT_EQ(devices[rank].description, "cuda (a GPU), shared by 3 ranks");
  }
  EXPECT_EQ(devices[1].memory_bytes, 600);
  EXPECT_EQ(devices[1].description, "cuda (a GPU)");
}

TEST(RankDevicesTest, ProcessorsAreNotShared) {
  std::vector<RankDevice> devices(2, {.description = "cpu", .memory_bytes = 600});
  share_gpus(devices);
  EXPECT_EQ(devices[0].memory_bytes, 600);
  EXPECT_EQ(devices[1].description, "cpu");
}

TEST(RankDevicesTest, OpenMpsVariableDecidesTheThreads) {
  Topology bound;
  bound.threads_of_rank = 4;
  const auto threads = [&](const char* text) {
    return with_asked_threads(bound, text).threads_of_rank;
  };
  EXPECT_EQ(threads("2"), 2);
  EXPECT_EQ(threads(" 3 , 2"), 3) << "of the outer team";
  EXPECT_EQ(threads("16"), 16);
  for (const char* const none :
       {static_cast<const char*>(nullptr), "", "0", "-1", "two", "2x", "9999999999"})
    EXPECT_EQ(threads(none), 4);
  EXPECT_FALSE(with_asked_threads(bound, "4").share_core);
  EXPECT_TRUE(with_asked_threads(bound, "5").share_core);
}

TEST(RankDevicesTest, TheBackendIsOfTheFingerprint) {
  EXPECT_EQ(machine_fingerprint({{0, 1}}, {gpu("a"), gpu("b")}).at("backend"), "cuda");
  EXPECT_EQ(machine_fingerprint({{0}}, {RankDevice{}}).at("backend"), "cpu");
}

TEST(VariablesTest, OnlyListedOnesAreShown) {
  for (const char* name : {"OMP_NUM_THREADS", "NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME",
                           "CUDA_VISIBLE_DEVICES", "OMPI_MCA_btl", "SLURM_JOB_ID", "DSTUNE_INJECT"})
    EXPECT_TRUE(is_shown_variable(name)) << name;
  for (const char* name :
       {"DSTUNE_TOKEN", "NCCL_Api_Key", "UCX_SECRET_ID", "FI_PASSWORD", "OMP_keys", "HOME",
        "HF_TOKEN", "NCCL_AUTH", "DSTUNE_CREDENTIAL", "UCX_COOKIE", "OMPI_MCA_mpi_login",
        "SLURM_JOB_ID_AUTH", "FI_BEARER", "nccl_debug", "OMP_", ""})
    EXPECT_FALSE(is_shown_variable(name)) << name;
}

}  // namespace
}  // namespace dstune
