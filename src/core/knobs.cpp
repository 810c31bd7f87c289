#include "dstune/core/knobs.hpp"

#include <unordered_map>

#include "knob_rows.hpp"

namespace dstune {

std::span<const Knob> knobs() {
  static const std::vector<Knob> all = [] {
    std::vector<Knob> joined;
    for (const std::span<const Knob> part : {rows::engine(), rows::optimizer(), rows::precision(),
                                             rows::zero_stage(), rows::zero_offload()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  return all;
}

const Knob* find_knob(std::string_view pointer) {
  static const std::unordered_map<std::string_view, const Knob*> rows_by_pointer = [] {
    std::unordered_map<std::string_view, const Knob*> found;
    for (const Knob& knob : knobs()) found.emplace(knob.pointer, &knob);
    return found;
  }();
  const auto found = rows_by_pointer.find(pointer);
  return found == rows_by_pointer.end() ? nullptr : found->second;
}

}  // namespace dstune
