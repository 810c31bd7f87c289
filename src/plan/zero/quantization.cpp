#include "zero/quantization.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/plan/step_plan.hpp"

namespace dstune::plan {
namespace {

/// DeepSpeed's kernels read and write so many numbers at once.
constexpr std::int64_t numbers_at_once = 8;

/// The gathers of a micro-step, as ParameterSource makes them, on numbers alone.
class GatherCheck {
 public:
  GatherCheck(const Layout& layout, std::size_t num_visits, const TrainingConfig& config)
      : layout_(layout),
        num_visits_(static_cast<int>(num_visits)),
        scale_of_secondary_(layout.shards_of_secondary()),
        sequential_(config.stage3_allgather_sequential) {}

  void run(const MicroStepGathers& gathers, bool after_update) {
    is_refreshed_.assign(layout_.pieces().size(), scale_of_secondary_ > 0 && !after_update);
    for (int visit = 0; visit < num_visits_; ++visit) {
      check(gathers.fetched[visit]);
      check(gathers.prefetched[visit]);
      for (const int piece : gathers.released[visit])
        is_refreshed_[static_cast<std::size_t>(piece)] = scale_of_secondary_ > 0;
    }
  }

  /// Of a gather that is no multiple of 8; 0: there is none.
  [[nodiscard]] std::int64_t broken_elements() const { return broken_elements_; }

 private:
  void check(std::span<const int> pieces) {
    std::int64_t of_first = 0, of_second = 0;
    for (const int piece : pieces) {
      const bool is_refreshed = is_refreshed_[static_cast<std::size_t>(piece)];
      const std::int64_t shard =
          layout_.piece_shard_elements(piece) * (is_refreshed ? scale_of_secondary_ : 1);
      (is_refreshed ? of_second : of_first) += shard;
      if (sequential_) note(shard);
    }
    if (sequential_) return;
    note(of_first);
    note(of_second);
  }
  void note(std::int64_t elements) {
    if (elements % numbers_at_once != 0) broken_elements_ = elements;
  }

  const Layout& layout_;
  int num_visits_;
  std::int64_t scale_of_secondary_;
  bool sequential_;
  std::vector<bool> is_refreshed_;
  std::int64_t broken_elements_ = 0;
};

/// Rows and columns are told apart nowhere.
std::int64_t longer_side(const Layout& layout, const Piece& piece) {
  const std::int64_t columns = layout.parameter(piece.parameter).columns;
  return std::max(piece.elements / columns, columns);
}

std::int64_t scales_of(const Layout& layout, const Piece& piece) {
  return std::max<std::int64_t>(longer_side(layout, piece), layout.group_size());
}

}  // namespace

std::int64_t weights_of_a_scale(std::int64_t elements) {
  constexpr std::int64_t most = 8000;
  const std::int64_t whole = elements / numbers_at_once;
  std::int64_t run = whole / ((elements + most - 1) / most);
  while (whole % run != 0) --run;
  return numbers_at_once * run;
}

int quantizing_nodes(const Layout& layout, const TrainingConfig& config) {
  if (!quantizes_gradients(config) || config.ranks_per_node == 0) return 0;
  const auto nodes = static_cast<int>(layout.group_size() / config.ranks_per_node);
  return nodes > 1 ? nodes : 0;
}

bool is_gradient_quantized(const Layout& layout, const Piece& piece) {
  return layout.parameter(piece.parameter).columns > 1 &&
         piece.elements % (2 * std::int64_t{layout.group_size()}) == 0;
}

std::int64_t gradients_of_a_scale(const Layout& layout, const Piece& piece) {
  return piece.elements / scales_of(layout, piece);
}

std::string weights_violation(const Layout& layout, const Gathering& gathering,
                              const TrainingConfig& config) {
  if (!quantizes_weights(config) || layout.group_size() == 1) return {};
  GatherCheck check(layout, gathering.traced->trace.visits.size(), config);
  check.run(gathering.traced->first, false);
  if (config.accumulation_steps > 1) check.run(gathering.second, false);
  check.run(gathering.steady, true);
  if (config.accumulation_steps > 1) check.run(gathering.steady, false);
  if (check.broken_elements() == 0) return {};
  return fmt::format(
      "DeepSpeed's zero_quantized_weights fails: a rank's part of a gather has {} elements, which "
      "is no multiple of 8",
      check.broken_elements());
}

std::string gradients_violation(const Layout& layout, const TrainingConfig& config) {
  if (quantizing_nodes(layout, config) == 0) return {};
  if (communication_type(config) != DType::f16) {
    return "DeepSpeed's zero_quantized_gradients takes every gradient for fp16 where there are "
           "several nodes, and so destroys others: train in fp16, or write communication_data_type "
           "fp16";
  }
  for (const Piece& piece : layout.pieces()) {
    if (!is_gradient_quantized(layout, piece)) continue;
    const std::string& name = layout.parameter(piece.parameter).name;
    if (scales_of(layout, piece) % layout.group_size() != 0) {
      return fmt::format(
          "DeepSpeed's zero_quantized_gradients fails where {} ranks do not divide the longer side "
          "of a matrix: {} of {}",
          layout.group_size(), longer_side(layout, piece), name);
    }
    if (gradients_of_a_scale(layout, piece) % numbers_at_once != 0) {
      return fmt::format(
          "DeepSpeed's zero_quantized_gradients reads 8 numbers at once, and {} share a scale in "
          "{}",
          gradients_of_a_scale(layout, piece), name);
    }
  }
  return {};
}

}  // namespace dstune::plan
