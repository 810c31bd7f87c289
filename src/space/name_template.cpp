#include "name_template.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "names.hpp"

namespace dstune {

namespace {

using Kind = Dimension::Kind;

std::string last_part(const std::string& pointer) {
  return pointer.substr(pointer.rfind('/') + 1);
}

/// Keys of what differs: those inside candidates that are objects, else the dimension's own.
void add_keys(const Dimension& dimension, std::vector<std::string>& keys) {
  const auto add = [&](const std::string& key) {
    if (key != "stage" && std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(key);
  };
  add(last_part(dimension.pointer));
  for (const auto& candidate : dimension.candidates) {
    if (!candidate.is_object()) continue;
    for (const auto& [key, value] : candidate.items()) add(key);
  }
}

bool names_itself(const Dimension& dimension) {
  if (dimension.candidates.size() == 1) return false;
  return dimension.kind == Kind::train_batch_size ||
         (dimension.kind == Kind::knob && dimension.pointer != "/zero_optimization/stage");
}

}  // namespace

NameTemplate::NameTemplate(const Product& product, bool with_shape, bool with_recompute) {
  std::vector<std::string> keys;
  for (const auto& dimension : product.dimensions) {
    if (names_itself(dimension)) {
      is_short_ = false;
      add_keys(dimension, keys);
    }
    for (const auto& candidate : dimension.candidates) {
      if (dimension.kind == Kind::shape && with_shape)
        shapes_.push_back(fmt::format(
            "_ng{}", candidate.at("num_gpus").get<int>() * candidate.at("num_nodes").get<int>()));
      if (dimension.kind == Kind::recompute && with_recompute)
        recomputes_.push_back("_ar" + candidate.get<std::string>());
    }
  }
  for (const auto& [key, value] : product.base.items())
    add_parts(product, key, value, json::append_pointer("", key), keys);
}

void NameTemplate::add_parts(const Product& product, const std::string& key,
                             const json::Value& value, const std::string& pointer,
                             const std::vector<std::string>& keys) {
  const auto& dimensions = product.dimensions;
  const auto found =
      std::find_if(dimensions.begin(), dimensions.end(), [&](const Dimension& dimension) {
        return !dimension.pointer.empty() && dimension.pointer == pointer;
      });
  if (found == dimensions.end()) {
    const bool is_offload = key == "offload_param" || key == "offload_optimizer";
    if (value.is_object() && !is_offload) {
      for (const auto& [inner, member] : value.items())
        add_parts(product, inner, member, json::append_pointer(pointer, inner), keys);
      return;
    }
    const std::string text = canonical_part(key, value, keys, false);
    if (!text.empty()) parts_.push_back({Kind::knob, -1, {text}});
    return;
  }
  Part part{found->kind, static_cast<int>(found - dimensions.begin()), {}};
  if (found->kind == Kind::knob) {
    for (const auto& candidate : found->candidates)
      part.texts.push_back(canonical_part(key, candidate, keys, false));
  } else {
    part.texts.push_back(canonical_part(key, nullptr, keys, true));
    if (part.texts.front().empty()) return;
    part.texts.front().pop_back();
  }
  parts_.push_back(std::move(part));
}

std::string NameTemplate::name(const std::vector<std::size_t>& digits, int zero_stage,
                               const BatchTriple& batch) const {
  std::string name = fmt::format("z{}_", zero_stage);
  if (is_short_) {
    name += fmt::format("gas{}_tmbspg{}", batch.accumulation_steps, batch.micro_batch);
  } else {
    const auto append_size = [&](const Part& part, std::int64_t size) {
      // As canonical_part() writes a number.
      name += size > 9000 ? fmt::format("{}{:.1e}_", part.texts.front(), static_cast<double>(size))
                          : fmt::format("{}{}_", part.texts.front(), size);
    };
    for (const Part& part : parts_) {
      if (part.kind == Kind::train_batch_size) {
        append_size(part, batch.train_batch_size);
      } else if (part.kind == Kind::micro_batch) {
        append_size(part, batch.micro_batch);
      } else if (part.kind == Kind::accumulation_steps) {
        append_size(part, batch.accumulation_steps);
      } else {
        const std::size_t digit =
            part.dimension < 0 ? 0 : digits[static_cast<std::size_t>(part.dimension)];
        name += part.texts[digit];
      }
    }
    name.pop_back();
  }
  if (!shapes_.empty()) name += shapes_[digits.front()];
  if (!recomputes_.empty()) name += recomputes_[digits.back()];
  return folder_safe(name);
}

}  // namespace dstune
