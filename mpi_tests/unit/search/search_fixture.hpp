#pragma once
/// What tests of the search share: observations, sizes, and jobs from documents in a folder of
/// their own.

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"
#include "folder_test.hpp"

namespace dstune {

/// A run that ended so.
inline Observation ended(Status status, std::optional<double> value = {}) {
  if (!value) return {status, std::nullopt};
  return {status, MetricValue{*value, *value, *value}};
}
inline Observation ok(double value) {
  return ended(Status::ok, value);
}

/// From 1 on.
inline std::vector<std::int64_t> sizes_to(std::int64_t largest) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(largest));
  std::iota(sizes.begin(), sizes.end(), 1);
  return sizes;
}

/// Libraries that need no scratch.
class NoWorkspaces : public WorkspaceSizes {
 public:
  std::int64_t matmul(const op::Matmul&, DType, DType) const override { return 0; }
  std::int64_t norm(std::int64_t) const override { return 0; }
  std::int64_t attention(std::int64_t, std::int64_t, const ModelSpec&, DType) const override {
    return 0;
  }
};

inline constexpr std::int64_t plenty_bytes = std::int64_t{1} << 50;

class SearchTest : public test::FolderTest {
 protected:
  /// A job with a tiny model; `dstune` and `rest` are members of the section and of the document.
  JobSpec job(const std::string& rest, const std::string& dstune = "") {
    const std::string model = R"({"family": "gpt2", "hidden_size": 64, "num_layers": 2,
        "num_heads": 2, "vocab_size": 512, "max_positions": 128})";
    const auto path = write("space.json", "{\"dstune\": {\"model\": " + model + ", " + dstune +
                                              (dstune.empty() ? "" : ", ") +
                                              "\"sequence_length\": 32}, " + rest + "}");
    Overrides overrides = overrides_;
    overrides.deepspeed_version = Version{0, 19, 6};
    return read_job(path, overrides, machine_, 1);
  }

  PlannedSpace plan(const JobSpec& read, std::int64_t device_memory_bytes = plenty_bytes,
                    std::int64_t host_memory_bytes = plenty_bytes,
                    const Forecasts& forecasts = {}) {
    PlannerOptions options;
    options.forecasts = forecasts;
    options.device_memory_bytes = device_memory_bytes;
    options.host_memory_bytes = host_memory_bytes;
    return plan_space(read, SearchSpace(read), workspaces_, options);
  }

  Overrides overrides_;
  std::optional<Machine> machine_;
  NoWorkspaces workspaces_;
};

}  // namespace dstune
