#include "candidate_lists.hpp"

#include <utility>

#include "dstune/core/knobs.hpp"

namespace dstune {

namespace {

bool is_list_knob(const std::string& pointer) {
  const Knob* const knob = find_knob(pointer);
  return knob != nullptr && knob->type == KnobType::list;
}

/// DeepSpeed's schema may know nothing of what stands under these, so that a list may be a value.
bool is_open_optimizer_member(const std::string& pointer) {
  return pointer.starts_with("/optimizer/") && find_knob(pointer) == nullptr;
}

}  // namespace

bool is_candidate_list(const json::Node& node) {
  if (!node.is_array() || is_open_optimizer_member(node.pointer())) return false;
  if (!is_list_knob(node.pointer())) return true;
  return !node.value().empty() && node.value().front().is_array();
}

std::vector<json::Value> product_of(const json::Node& node, const std::string& knob_pointer) {
  if (!node.is_object()) return {node.value()};
  std::vector<json::Value> objects = {json::Value::object()};
  for (const auto& key : node.keys()) {
    const json::Node member = *node.find(key);
    const auto pointer = json::append_pointer(knob_pointer, key);
    std::vector<json::Value> candidates;
    if (is_candidate_list(json::Node(node.document(), member.value(), pointer))) {
      for (const auto& element : member.elements()) {
        for (auto& value : product_of(element, pointer)) candidates.push_back(std::move(value));
      }
    } else {
      candidates = product_of(member, pointer);
    }
    std::vector<json::Value> longer;
    for (const auto& object : objects) {
      for (const auto& candidate : candidates) {
        longer.push_back(object);
        longer.back()[key] = candidate;
      }
    }
    objects = std::move(longer);
  }
  return objects;
}

}  // namespace dstune
