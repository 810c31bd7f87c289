#pragma once
/// The common part of norms: a row among the threads of a block.

#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// A thread's share of a row's packs, of which the first `kept` stay in registers; the others,
/// unless the row `fits`, are read again.
template <int N, int kept, bool fits = false>
class RowPart {
 public:
  struct Kept {
    Values<N> of[kept];
    Input from;  ///< of the others
  };

  DSTUNE_DEVICE RowPart(const Block& block, std::int64_t row, std::int64_t width)
      : begin_(row * width),
        width_(static_cast<int>(width)),
        first_(N * block.thread()),
        step_(N * block.threads()) {}

  /// A share without a pack takes the row's first: no branch, so that nothing waits for these
  /// before more is asked for.
  DSTUNE_DEVICE Kept load(Input from) const {
    Kept part{{}, from};
    DSTUNE_UNROLL
    for (int j = 0; j < kept; ++j) {
      const int i = place(j);
      part.of[j] = from.load<N>(begin_ + (i < width_ ? i : 0));
    }
    return part;
  }
  /// step(i, values…) for each pack of the share that is kept, in parts of equal rows.
  template <class Step, class... Parts>
  DSTUNE_DEVICE void for_kept(Step step, Parts&... parts) const {
    DSTUNE_UNROLL
    for (int j = 0; j < kept; ++j) {
      const int i = place(j);
      if (i < width_) step(i, parts.of[j]...);
    }
  }
  /// Likewise for each pack.
  template <class Step, class... Parts>
  DSTUNE_DEVICE void for_each(Step step, const Parts&... parts) const {
    for_kept(step, parts...);
    for_others([&](int i) { step(i, parts.from.template load<N>(begin_ + i)...); });
  }
  template <class Step>
  DSTUNE_DEVICE void for_others(Step step) const {
    if constexpr (!fits) {
      for (int i = place(kept); i < width_; i += step_) step(i);
    }
  }
  /// The place in the row of the share's pack number j; beyond the row's end if there is none.
  DSTUNE_DEVICE int place(int j) const { return first_ + j * step_; }

 private:
  std::int64_t begin_;
  int width_, first_, step_;
};

/// The widest row of which each of a block's threads has one pack.
constexpr std::int64_t widest_row = std::int64_t{pack} * cuda::max_threads;
/// The widest row of which each has two: with_kept() keeps it whole, so that it is read once.
constexpr std::int64_t widest_kept_row = 2 * widest_row;

/// call(how many packs of a row a thread keeps): no more registers than the row takes.
template <class Call>
void with_kept(std::int64_t width, Call call) {
  with_either<1, 2>(width <= widest_row, call);
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
