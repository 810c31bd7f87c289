#include "dstune/space/workload_spec.hpp"

#include <vector>

#include "dstune/core/keys.hpp"

namespace dstune {

const EnumTexts& texts_of(WorkloadKind) {
  static const auto rows = [] {
    std::vector<EnumText> all;
    for (const std::string_view word : choices_of("dstune", "/dstune/workload/type"))
      all.push_back({static_cast<int>(all.size()), word});
    return all;
  }();
  static const EnumTexts texts{rows};
  return texts;
}

}  // namespace dstune
