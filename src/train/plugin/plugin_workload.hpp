#pragma once
/// A workload of the user's own, from a shared library (dstune/workload.h).

#include <memory>
#include <string>

#include "dstune/train/plugin_functions.hpp"
#include "dstune/train/workload.hpp"
#include "plugin/plugin_group.hpp"

namespace dstune::train {

class PluginWorkload : public Workload {
 public:
  /// Throws Error where the library can not be loaded.
  explicit PluginWorkload(const WorkloadContext& context);
  ~PluginWorkload() override;
  PluginWorkload(const PluginWorkload&) = delete;
  PluginWorkload& operator=(const PluginWorkload&) = delete;

  /// Collective over the group. Throws RecordedStatus.
  void build() override;
  void initialize() override {}
  StepSample step(std::int64_t step) override;
  [[nodiscard]] PeakMemory peak_memory() const override;
  [[nodiscard]] double flops_per_step() const override;
  [[nodiscard]] std::int64_t micro_steps() const override {
    return context_.config->accumulation_steps;
  }
  /// It meets them first.
  [[nodiscard]] bool talks_to_peers() const override { return false; }

 private:
  dstune_status report();
  void check_usage() const;

  WorkloadContext context_;
  const PluginFunctions& functions_;
  PluginGroup group_;
  void* workload_ = nullptr;
  bool is_built_ = false;
  dstune_usage usage_{};
};

}  // namespace dstune::train
