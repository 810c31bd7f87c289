#include "deepspeed_sizes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/keys.hpp"

namespace dstune {

namespace {

using json::Value;

/// A number as Python has it; nothing: another value, or none.
std::optional<double> number_in(const Value& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>() ? 1 : 0;
  return found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

/// Python's `//`, of what is left without the remainder.
double quotient(double number, double by) {
  const double rest = std::fmod(number, by);
  const double times = (number - rest) / by;
  return std::round(rest != 0 && (rest < 0) != (by < 0) ? times - 1 : times);
}

/// Without the fraction; far larger numbers than any batch are one of them.
std::int64_t whole(double number) {
  return static_cast<std::int64_t>(std::min(number, 1e15));
}

/// A member that DeepSpeed compares with numbers.
struct Bound {
  const char* key;
  double fallback, low;
};
constexpr std::array bounds = {Bound{"min_gpus", 1, 1}, Bound{"max_gpus", 10000, 1},
                               Bound{"model_parallel_size", 1, 1}, Bound{"num_gpus_per_node", 1, 1},
                               Bound{"min_time", 0, 0}};

/// The smallest highly composite numbers, as DeepSpeed lists them.
constexpr std::array<std::int64_t, 38> composite = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

class Elasticity {
 public:
  Elasticity(const Value& section, Version release) : section_(&section), release_(release) {}

  std::string refusal(std::optional<int> ranks) {
    for (const char* const key : {"max_train_batch_size", "micro_batch_sizes"})
      if (!section_->contains(key)) return fmt::format("needs {} where it is enabled: add it", key);
    if (!number_in(*section_, "max_train_batch_size"))
      return "max_train_batch_size: expected a number";
    const Value& sizes = section_->at("micro_batch_sizes");
    const bool are_sizes =
        sizes.is_array() && !sizes.empty() && std::ranges::all_of(sizes, [](const Value& size) {
          return (size.is_number_integer() && size > 0) || size == true;
        });
    if (!are_sizes) return "micro_batch_sizes: expected a list of positive integers";
    for (const Value& size : sizes)
      micro_.push_back(size.is_boolean() ? 1 : size.get<std::int64_t>());
    for (const auto& [key, fallback, low] : bounds)
      if (!(value_of(key, fallback) >= low))
        return fmt::format("{}: expected {} or more", key, low);
    if (value_of("max_gpus", 10000) < value_of("min_gpus", 1)) return "min_gpus is above max_gpus";
    const double version = version_of();
    if (version != 0.1 && version != 0.2) return "version: expected 0.1 or 0.2";
    const double nodes = value_of("num_gpus_per_node", 1);
    const double parts = value_of("model_parallel_size", 1);
    if (parts > 1 && version != 0.2) return "version 0.1 has no model_parallel_size";
    if (version == 0.2 && std::fmod(nodes, parts) != 0)
      return "num_gpus_per_node is no multiple of model_parallel_size";
    return ranks
               ? refusal_on(*ranks, version == 0.2 ? nodes : 1, version == 0.2 ? nodes / parts : 1)
               : "";
  }

 private:
  /// Not a number: NaN, which no comparison holds for.
  [[nodiscard]] double value_of(const char* key, double fallback) const {
    if (!section_->contains(key)) return fallback;
    return number_in(*section_, key).value_or(std::nan(""));
  }

  [[nodiscard]] double version_of() const {
    const auto found = section_->find("version");
    if (found != section_->end() && found->is_string())
      return Value::parse(trimmed(found->get_ref<const std::string&>()), nullptr, false).is_number()
                 ? Value::parse(trimmed(found->get_ref<const std::string&>())).get<double>()
                 : std::nan("");
    return value_of("version", 0.2);
  }

  /// `per_node`: GPUs of a node, and `copies` of the model on them, of version 0.2.
  std::string refusal_on(int ranks, double per_node, double copies) {
    const auto most = whole(value_of("max_train_batch_size", 0) / copies);
    const auto smallest = *std::ranges::min_element(micro_);
    if (*std::ranges::max_element(micro_) > most)
      return "max_train_batch_size is below one of micro_batch_sizes";
    auto fewest = whole(value_of("min_gpus", 1) / per_node);
    auto largest = whole(value_of("max_gpus", 10000) / per_node);
    if (fewest == 0) fewest = 1;
    if (largest == 0) largest = most / smallest;
    std::set<std::int64_t> counts;
    std::int64_t chosen = smallest;
    const bool prefers_larger =
        !section_->contains("prefer_larger_batch") || is_true(section_->at("prefer_larger_batch"));
    for (const std::int64_t size : candidates(most)) {
      std::set<std::int64_t> found = counts_for(size, fewest, largest);
      const bool is_better =
          found.size() > counts.size() ||
          (found.size() == counts.size() && (prefers_larger ? size > chosen : size < chosen));
      if (!is_better) continue;
      counts = std::move(found);
      chosen = size;
    }
    const auto groups = static_cast<std::int64_t>(copies);
    // Version 0.2 takes any other number of nodes with sizes of its own.
    if (ranks % groups != 0 || !counts.contains(ranks / groups))
      return groups == 1 && per_node == 1 && version_of() == 0.1
                 ? fmt::format("{} ranks are none of the numbers that go with its sizes", ranks)
                 : refusal_of_other(ranks, per_node, copies);
    return fits(chosen * groups, ranks);
  }

  std::string refusal_of_other(int ranks, double per_node, double copies) const {
    const double present = ranks / per_node * copies;
    double size = 0;
    for (const std::int64_t micro : micro_) {
      const double step = static_cast<double>(micro) * present;
      size = std::max(size, std::floor(value_of("max_train_batch_size", 0) / step) * step);
    }
    if (static_cast<std::int64_t>(present) != ranks)
      return fmt::format("{} ranks are none of the numbers that go with its sizes", ranks);
    return fits(static_cast<std::int64_t>(size), ranks);
  }

  [[nodiscard]] std::string fits(std::int64_t size, int ranks) const {
    for (const std::int64_t micro : micro_)
      if (size > 0 && size / ranks % micro == 0) return "";
    return fmt::format("none of micro_batch_sizes goes with {} ranks", ranks);
  }

  [[nodiscard]] std::set<std::int64_t> candidates(std::int64_t most) const {
    std::vector<std::int64_t> bases = micro_;
    bases.push_back(std::accumulate(micro_.begin(), micro_.end(), std::int64_t{1},
                                    [](auto one, auto other) { return std::lcm(one, other); }));
    std::set<std::int64_t> sizes;
    for (const std::int64_t base : bases) {
      if (base > most && release_ >= Version{0, 19, 6}) continue;
      const auto next = std::ranges::upper_bound(composite, most / base);
      sizes.insert(base >= most ? base : *std::prev(next) * base);
    }
    return sizes;
  }

  [[nodiscard]] std::set<std::int64_t> counts_for(std::int64_t size, std::int64_t fewest,
                                                  std::int64_t largest) const {
    std::set<std::int64_t> counts;
    for (const std::int64_t micro : micro_) {
      if (size % micro != 0) continue;
      const std::int64_t all = size / micro;
      for (std::int64_t count = fewest; count <= std::min(all, largest); ++count)
        if (all % count == 0) counts.insert(count);
    }
    return counts;
  }

  const Value* section_;
  Version release_;
  std::vector<std::int64_t> micro_;
};

}  // namespace

std::string refusal_of_sizes(const Value& config, int ranks, Version release) {
  double group = ranks;
  if (config.contains("sequence_parallel_size") && release >= Version{0, 17, 6}) {
    const double parts = number_in(config, "sequence_parallel_size").value_or(0);
    if (parts == 0 && release >= Version{0, 19, 6})
      return "DeepSpeed divides by sequence_parallel_size: write 1 or more";
    group = parts == 0 ? 1 : group / parts;
  }
  auto total = number_in(config, "train_batch_size");
  auto micro = number_in(config, "train_micro_batch_size_per_gpu");
  auto steps = number_in(config, "gradient_accumulation_steps");
  const auto is_automatic = [&](const char* key) {
    return config.contains(key) && config.at(key) == "auto";
  };
  if (!total && !micro) {
    if (is_automatic("train_batch_size") || is_automatic("train_micro_batch_size_per_gpu"))
      micro = 8;
    else
      return "DeepSpeed needs train_batch_size or train_micro_batch_size_per_gpu: add one";
  }
  for (const auto& given : {total, micro, steps})
    if (given == 0) return "batch sizes are positive, and one is 0";
  if (!steps) steps = total && micro ? quotient(quotient(*total, *micro), group) : 1;
  if (!micro) micro = quotient(quotient(*total, group), *steps);
  if (!total) total = *micro * *steps * group;
  if (*total > 0 && *micro > 0 && *steps > 0 && *total == *micro * *steps * group) return "";
  return fmt::format(
      "train_batch_size {} is not train_micro_batch_size_per_gpu {} x "
      "gradient_accumulation_steps {} x {} ranks",
      *total, *micro, *steps, group);
}

std::optional<std::string> refusal_of_elasticity(const Value& config, std::optional<int> ranks,
                                                 Version release) {
  const auto section = config.find("elasticity");
  if (section == config.end() || !section->is_object() || release >= Version{0, 19, 8})
    return std::nullopt;
  const auto enabled = section->find("enabled");
  if (enabled == section->end() || !is_true(*enabled)) return std::nullopt;
  std::string refusal = Elasticity(*section, release).refusal(ranks);
  const auto ignores = section->find("ignore_non_elastic_batch_info");
  const bool is_ignored = ignores != section->end() && is_true(*ignores);
  for (const char* const key :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
    if (refusal.empty() && !is_ignored && config.contains(key))
      refusal = fmt::format(
          "decides the batch sizes, and {} is there: remove it, or add "
          "ignore_non_elastic_batch_info true",
          key);
  return refusal;
}

}  // namespace dstune
