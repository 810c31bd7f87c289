#pragma once
/// Whole parameters for the arithmetic: always there in stages 0 to 2, gathered module by module in
/// stage 3, as the schedule of gathers says.

#include <memory>

#include "zero/gathering.hpp"
#include "zero/states.hpp"

namespace dstune::plan {

class ModuleVisits;

class ParameterSource {
 public:
  /// `gathering`: at stage 3 only.
  ParameterSource(const ZeroContext& zero, const Gathering* gathering);
  ~ParameterSource();

  /// Stage 3: the gathers of the micro-step that begins. `after_update`: the second partition holds
  /// the parameters of before it.
  void begin_micro_step(const MicroStepGathers& gathers, bool after_update);
  void end_micro_step();

  /// Parameters of these roles (the last may be missing) can be viewed from use to done. Calls come
  /// in the order in which the modules of the Hugging Face model would be run.
  void use(int unit, ParameterRole first, ParameterRole last);
  void done(int unit, ParameterRole first, ParameterRole last);

  /// Forward is run once more for backward. A module whose backward has begun goes on holding its
  /// parameters.
  void run_again(bool again);

  /// No view where the unit has no such parameter.
  [[nodiscard]] View view(int unit, ParameterRole role) const;

 private:
  [[nodiscard]] PieceRange find(int unit, ParameterRole first, ParameterRole last) const;

  const Layout& layout_;
  TensorId parameters_;                   ///< where nothing is gathered
  std::unique_ptr<ModuleVisits> visits_;  ///< where something is
};

}  // namespace dstune::plan
