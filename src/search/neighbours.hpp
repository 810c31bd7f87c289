#pragma once
/// Members as values of knobs: how far apart two are, and which values lie next to one's. Local.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "features.hpp"

namespace dstune {

/// A value of a knob …
struct KnobPoint {
  std::size_t knob = 0;
  int value = 0;
};
/// … or one of each of several.
using KnobChoice = std::vector<KnobPoint>;

class Neighbours {
 public:
  /// Makes the memory of each point one more knob, the last one, if points differ in it.
  Neighbours(const Points& points, const std::vector<std::int64_t>& memory_bytes,
             int num_memory_classes);

  /// The points with that knob: the memory that a member takes, in classes by its logarithm.
  /// Members that are short of memory, or of a cache, are slower than predicted whatever their
  /// knobs are.
  [[nodiscard]] const Points& points() const { return points_; }
  [[nodiscard]] std::size_t num_knobs() const { return knobs_.size(); }

  // These leave out the memory, which follows from the other knobs:
  /// In how many knobs two members differ.
  [[nodiscard]] int distance(std::size_t one, std::size_t other) const;
  /// The same; what is ordered counts by how far.
  [[nodiscard]] double difference(std::size_t one, std::size_t other) const;
  /// Tells whether the choice is of one knob alone.
  [[nodiscard]] bool is_of_knob(const KnobChoice& choice) const;
  [[nodiscard]] bool is_of_memory(const KnobChoice& choice) const;
  [[nodiscard]] bool is_of_shape(const KnobPoint& value) const;
  /// Tells whether both are of one group's shape, and, where it counts, of one ZeRO stage. Knobs of
  /// the choice are left out.
  [[nodiscard]] bool are_together(std::size_t one, std::size_t other, const KnobChoice& choice,
                                  bool stage_counts) const;

  [[nodiscard]] bool has(std::size_t place, const KnobChoice& choice) const;
  /// Other values than the member's: of what is ordered those 1, 2, 4, … places away; of memory
  /// less of it.
  [[nodiscard]] std::vector<int> values_next_to(std::size_t place, std::size_t knob) const;

 private:
  [[nodiscard]] std::span<const KnobValues> own_knobs() const {
    return std::span(knobs_).first(num_own_knobs_);
  }

  Points points_;
  std::vector<KnobValues> knobs_;
  std::size_t num_own_knobs_ = 0;
};

}  // namespace dstune
