#include "dstune/space/workload_spec.hpp"

namespace dstune {

const EnumTexts& texts_of(WorkloadKind) {
  // In the order of the enumerators.
  static constexpr auto kinds =
      numbered({"transformer", "synthetic", "replay", "plugin", "deepspeed"});
  static constexpr EnumTexts texts{kinds};
  return texts;
}

}  // namespace dstune
