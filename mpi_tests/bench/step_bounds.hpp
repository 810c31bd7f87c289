#pragma once
/// The least time that a GPU's peaks allow the operations of a step: by what the CUDA kernels and
/// the libraries read, write and compute, and nothing else. All functions: Local.

#include <optional>
#include <string>
#include <vector>

#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/work.hpp"

namespace dstune {

struct Peaks {
  double tflops = 0;     ///< of products and attention
  double tbs = 0;        ///< of memory, 10^12 bytes a second
  double launch_us = 0;  ///< between two kernels
};

struct Cost {
  double flops = 0;
  double bytes = 0;
  double launches = 1;
};

/// Of one operation. Tensors count once, or as often as the kernel reads them from memory; what is
/// as small as a statistic or a table of partial sums not at all, nor what a collective moves.
[[nodiscard]] Cost cost_of(const StepPlan& plan, const Work& work);
/// The slower of the two, and the launches.
[[nodiscard]] double least_s(const Cost& cost, const Peaks& peaks);

/// One kind of operation in one step; of products and attention each shape is one.
struct KindOfWork {
  std::string name;
  double count = 0;
  Cost cost;
  double least_s = 0;
  double measured_s = 0;
};
/// By the plan's steady step, the most expensive first; measured times are the traces' mean.
[[nodiscard]] std::vector<KindOfWork> kinds_of_work(const StepPlan& plan, const Peaks& peaks,
                                                    const std::vector<StepTrace>& traces);

/// The table of them, and their sum as tokens and TFLOP/s that no faster kernels could pass.
/// `step_flops`: of this rank, by 6N + 6LCT.
void print_kinds(const std::vector<KindOfWork>& kinds, double step_flops, const Peaks& peaks);

}  // namespace dstune
