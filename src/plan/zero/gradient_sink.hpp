#pragma once
/// Where backward writes gradients: the flat gradients, added up over the micro-steps (stages 0 and
/// 1; or anew in each, where sums are fp32), or a slab for each unit that is reduced and released
/// (stages 2 and 3).

#include <optional>
#include <vector>

#include "zero/reducer.hpp"

namespace dstune::plan {

struct MicroStep {
  bool first = false, last = false;
};

class GradientSink {
 public:
  explicit GradientSink(const ZeroContext& zero);

  void begin_backward(MicroStep micro);
  /// A unit's gradients can be written from open to close. Units close from the last to the first.
  void open(int unit);
  void close(int unit);
  void end_backward();
  /// Whether the last of several micro-steps does something else than those before it.
  [[nodiscard]] bool is_last_another() const {
    return reducer_ && (slabs_.empty() || reducer_->is_last_another());
  }

  /// No view where the unit has no such parameter.
  [[nodiscard]] View view(int unit, ParameterRole role) const;
  /// The first write of this micro-step adds to what is there.
  [[nodiscard]] bool accumulate() const {
    return slabs_.empty() && fp32_gradients_ == no_tensor && !micro_.first;
  }

 private:
  /// A unit's gradients of a micro-step, to the sums in fp32.
  void add_up(int unit);
  [[nodiscard]] View unit_view(int unit) const;

  Emitter& emitter_;
  const Layout& layout_;
  bool overlap_;
  bool adds_up_at_once_;  // each unit, or all of them behind backward
  TensorId gradients_;
  TensorId fp32_gradients_;
  std::optional<Reducer> reducer_;
  std::vector<TensorId> slabs_;  // of each unit, stages 2 and 3
  MicroStep micro_;
};

}  // namespace dstune::plan
