#include "check/gpu_findings.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/check_text.hpp"
#include "check/findings.hpp"
#include "dstune/base/archive.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Two ranks of a host, with a GPU each of which nothing is to be said.
class GpuFindingsTest : public testing::Test {
 protected:
  GpuFindingsTest() {
    for (int rank = 0; rank < 2; ++rank) {
      RankReport report;
      report.rank = rank;
      report.process = 100 + rank;
      report.host = "node0";
      report.device = "cuda (a GPU)";
      report.backend = "cuda";
      report.f32_flops = report.bf16_flops = 1e12;
      GpuFacts& gpu = report.gpu.emplace(GpuFacts{.uuid = "GPU-" + std::to_string(rank)});
      gpu.is_instance = gpu.has_mig = gpu.repair_pending = gpu.repair_failed = false;
      gpu.has_ecc = true;
      gpu.compute_mode = "default";
      gpu.uncorrected_errors = 0;
      gpu.processes.emplace();
      gpu.sm_clock_mhz = gpu.max_sm_clock_mhz = 1980;
      gpu.throttle_reasons = 0;
      gpu.pcie_width = gpu.max_pcie_width = 16;
      gpu.pcie_generation = gpu.max_pcie_generation = 5;
      gpu.nvlinks = 18;
      gpu.peers = {{"GPU-" + std::to_string(1 - rank), true}};
      gpu.driver_cuda = gpu.runtime_cuda = 13000;
      reports_.push_back(report);
    }
  }
  GpuFacts& gpu(std::size_t rank = 1) { return *reports_[rank].gpu; }
  [[nodiscard]] std::vector<std::string> failures() const {
    return findings_of(reports_, {}).failures;
  }
  [[nodiscard]] std::vector<std::string> notes() const { return findings_of(reports_, {}).notes; }

  std::vector<RankReport> reports_;
};

TEST_F(GpuFindingsTest, NothingIsSaidOfGpusThatAreWell) {
  EXPECT_THAT(failures(), IsEmpty());
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(GpuFindingsTest, NothingIsSaidOfWhatIsNotKnown) {
  for (RankReport& report : reports_) report.gpu = GpuFacts{.uuid = report.gpu->uuid};
  EXPECT_THAT(failures(), IsEmpty());
  EXPECT_THAT(notes(), IsEmpty());
  for (RankReport& report : reports_) report.gpu.reset();
  EXPECT_THAT(failures(), IsEmpty());
}

TEST_F(GpuFindingsTest, ADriverThatIsTooOldIsAFailure) {
  for (const std::size_t rank : {0, 1}) gpu(rank).driver_cuda = 12040;
  EXPECT_THAT(failures(),
              ElementsAre(AllOf(HasSubstr("rank 0 (node0) and 1 more"), HasSubstr("CUDA 13.0"),
                                HasSubstr("supports, 12.4"), HasSubstr("newer driver"))));
}

TEST_F(GpuFindingsTest, ADriverOfTheSameMajorNumberIsWorthALook) {
  gpu().runtime_cuda = 13020;
  EXPECT_THAT(failures(), IsEmpty());
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("minor version compatibility")));
  gpu().driver_cuda = 13030;
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(GpuFindingsTest, RanksCanNotShareAGpuForOneProcess) {
  gpu().uuid = gpu(0).uuid;
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("ranks 0, 1 share a GPU")));
  for (const std::size_t rank : {0, 1}) gpu(rank).compute_mode = "exclusive process";
  EXPECT_THAT(failures(), ElementsAre(AllOf(HasSubstr("ranks 0, 1"), HasSubstr("-c DEFAULT"))));
  for (const std::size_t rank : {0, 1}) gpu(rank).has_mps = true;
  EXPECT_THAT(failures(), IsEmpty());
}

TEST_F(GpuFindingsTest, AGpuForOneProcessServesOneRank) {
  for (const std::size_t rank : {0, 1}) gpu(rank).compute_mode = "exclusive process";
  EXPECT_THAT(failures(), IsEmpty());
  gpu().compute_mode = "prohibited";
  EXPECT_THAT(failures(), ElementsAre(HasSubstr("nobody may compute there")));
}

TEST_F(GpuFindingsTest, MemoryThatWasWrongIsAFailure) {
  gpu().uncorrected_errors = 3;
  EXPECT_THAT(failures(), ElementsAre(AllOf(HasSubstr("rank 1 (node0)"), HasSubstr("3 uncorrected"),
                                            HasSubstr("--gpu-reset -i GPU-1"))));
  gpu().uncorrected_errors = 0;
  gpu().repair_failed = true;
  EXPECT_THAT(failures(), ElementsAre(HasSubstr("could not remap")));
}

TEST_F(GpuFindingsTest, MemoryThatMayBecomeWrongIsWorthALook) {
  gpu().has_ecc = false;
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("ECC is off")));
  gpu().has_ecc = true;
  gpu().repair_pending = true;
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("set aside at its next reset")));
  EXPECT_THAT(failures(), IsEmpty());
}

TEST_F(GpuFindingsTest, WhoElseComputesThereIsNamed) {
  gpu().processes = {{.number = 100}, {.number = 101}, {4711, "python3", 3000LL << 20}};
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("process 4711 (python3)"),
                                         HasSubstr("has 3000 MiB there"), HasSubstr("end it"))));
  gpu().processes = std::vector<GpuProcess>{{.number = 42}};
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("process 42 computes"), Not(HasSubstr("MiB")))));
  gpu().processes = std::vector<GpuProcess>{{.number = 43, .name = "nvidia-cuda-mps"}};
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(GpuFindingsTest, APartOfAGpuIsWorthALook) {
  gpu().has_mig = true;
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("(MIG)"), HasSubstr("-mig 0"))));
}

TEST_F(GpuFindingsTest, LinksThatAreNarrowerOrFewerAreWorthALook) {
  gpu().pcie_width = 8;
  EXPECT_THAT(notes(),
              ElementsAre(AllOf(HasSubstr("8 of 16 lanes"), Not(HasSubstr("generation")))));
  gpu().pcie_width = 16;
  gpu().pcie_generation = 3;
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("generation 3 of 5")));
  gpu().pcie_generation = 5;
  gpu().nvlinks = 16;
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("rank 1 "), HasSubstr("16 active NVLinks"))));
  gpu().nvlinks = 18;
  gpu().peers = {{"GPU-0", false}, {"GPU-that-no-rank-has", false}};
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("no peer access to the GPU of rank 0:")));
  reports_[0].node = 1;
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(GpuFindingsTest, AClockThatIsLoweredIsNamedUnlessByThePowerCap) {
  gpu().throttle_reasons = 0x4;
  EXPECT_THAT(notes(), IsEmpty());
  gpu().throttle_reasons = 0x4 | 0x20;
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("(heat)"), HasSubstr("cooling"))));
  reports_[1].f32_flops /= 2;
  EXPECT_THAT(findings_of(reports_, {}).slow,
              ElementsAre(AllOf(HasSubstr("rank 1 (node0) is slow"),
                                HasSubstr("its GPU lowers its clock (power cap, heat)"))));
}

TEST_F(GpuFindingsTest, TheTextHasWhatTheDriverTells) {
  gpu().has_ecc.reset();
  gpu().max_sm_clock_mhz.reset();
  gpu().peers.clear();
  const std::string text = check_text(reports_, {});
  EXPECT_THAT(text, HasSubstr("CUDA: the driver supports 13.0, this program has 13.0"));
  EXPECT_THAT(text, HasSubstr("1980/1980"));
  EXPECT_THAT(text, HasSubstr("1980/?"));
  EXPECT_THAT(text, HasSubstr("not known"));
  EXPECT_THAT(text, HasSubstr("16/16"));
  EXPECT_THAT(text, HasSubstr("18    1/1\n"));
  EXPECT_THAT(text, HasSubstr("18      -\n"));
}

TEST_F(GpuFindingsTest, FactsTravelBetweenRanks) {
  gpu().processes = std::vector<GpuProcess>{{4711, "python3", 3000LL << 20}};
  gpu().has_ecc.reset();
  const auto read = json::unpack<RankReport>(json::pack(reports_[1]), "report");
  EXPECT_EQ(read.process, 101);
  EXPECT_EQ(read.gpu->uuid, "GPU-1");
  EXPECT_FALSE(read.gpu->has_ecc);
  EXPECT_EQ(read.gpu->processes->front().bytes, 3000LL << 20);
  EXPECT_EQ(read.gpu->peers, gpu().peers);
  EXPECT_EQ(read.gpu->driver_cuda, 13000);
  EXPECT_EQ(json::write(read), json::write(reports_[1]));
}

}  // namespace
}  // namespace dstune
