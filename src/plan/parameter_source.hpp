#pragma once
/// Whole parameters for the arithmetic: always there in stages 0 to 2, gathered a unit at a time in
/// stage 3.

#include <vector>

#include "layout.hpp"

namespace dstune::plan {

class ParameterSource {
 public:
  ParameterSource(Emitter& emitter, const Layout& layout, TensorId parameters);

  /// A unit's parameters can be viewed from fetch to release.
  void fetch(int unit);
  void release(int unit);

  /// No view where the unit has no such parameter.
  [[nodiscard]] View view(int unit, ParameterRole role) const;

 private:
  Emitter& emitter_;
  const Layout& layout_;
  TensorId parameters_;
  std::vector<TensorId> slabs_;  // of each unit, where it is gathered now
};

}  // namespace dstune::plan
