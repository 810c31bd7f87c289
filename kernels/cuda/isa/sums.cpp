// Sums in double: as many partial sums as the count alone decides, then these in order.
#include "common/clipping.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"
#include "isa/partial_sums.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct PartialSums {
  Input x;
  std::int64_t count;
  bool squared;
  double* partial;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t stride = block.blocks() * block.threads();
    double sum = 0.0;
    for (std::int64_t i = block.index() * block.threads() + block.thread(); i < count;
         i += stride) {
      const double value = x[i];
      sum += squared ? value * value : value;
    }
    sum = block_sum(block, sum);
    if (block.thread() == 0) partial[block.index()] = sum;
  }
};

struct SumOfPartialSums {
  const double* partial;
  std::int64_t count;
  double* total;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    double sum = 0.0;
    for (std::int64_t i = block.thread(); i < count; i += block.threads()) sum += partial[i];
    sum = block_sum(block, sum);
    if (block.thread() == 0) *total += sum;
  }
};

struct FindClipFactor {
  ClipFactor clip;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    if (block.thread() == 0) clip.find();
  }
};

void add_sum(Input x, std::int64_t count, bool squared, double* sum) {
  if (count <= 0) return;
  constexpr std::int64_t elements_per_block = 4096;
  const std::int64_t blocks = smaller_of(divide_up(count, elements_per_block), most_partial_sums);
  launch({.blocks = blocks, .shared_bytes = reduction_bytes},
         PartialSums{x, count, squared, sum + 1});
  launch({.shared_bytes = reduction_bytes}, SumOfPartialSums{sum + 1, blocks, sum});
}

}  // namespace

void sum_of_squares(DType type, const void* x, std::int64_t count, double* sum) {
  add_sum({x, type}, count, true, sum);
}

void sum_f32(const float* x, std::int64_t count, double* sum) {
  add_sum({x, DType::f32}, count, false, sum);
}

void clip_factor(const double* squares, std::int64_t count, double clip, double loss_scale,
                 double* norm, float* factor) {
  launch({.threads = warp_size}, FindClipFactor{{squares, count, clip, loss_scale, norm, factor}});
}

}  // namespace dstune::kernels::DSTUNE_ISA
