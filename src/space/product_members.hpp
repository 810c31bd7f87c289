#pragma once
/// The members of one product: how a member's number, the candidates of its dimensions and its
/// configuration belong together. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/settings.hpp"
#include "dstune/space/search_space.hpp"
#include "sections/names.hpp"
#include "sections/products.hpp"

namespace dstune {

/// The candidate of each dimension.
using Digits = std::vector<std::size_t>;

/// A product with the numbers of its members in the space.
struct SpacePart {
  SpacePart(Product made, std::uint64_t begin, bool with_shape, bool with_recompute);

  [[nodiscard]] Digits digits_of(std::uint64_t number) const;
  /// As Member's.
  [[nodiscard]] std::optional<std::uint64_t> micro_batch_chain(std::uint64_t number,
                                                               const Digits& digits) const;

  Product product;
  std::uint64_t first = 0;  ///< number of its first member
  std::uint64_t size = 0;
  std::vector<std::uint64_t> strides;
  std::vector<std::vector<std::uint32_t>> depths;
  std::vector<json::Value::json_pointer> places;
  NameTemplate names;
  std::size_t micro_batch = 0;  ///< that dimension
};

struct SpaceParts {
  std::vector<SpacePart> all;

  [[nodiscard]] std::uint64_t size() const { return all.back().first + all.back().size; }
  [[nodiscard]] const SpacePart& part_of(std::uint64_t number) const;
};

/// Goes through the members of a product, changing only what differs from one to the next.
class MemberCursor {
 public:
  /// At member 0. `product` outlives it.
  MemberCursor(const KnobTable& table, const Product& product);

  [[nodiscard]] const Digits& digits() const { return digits_; }
  [[nodiscard]] const Settings& settings() const { return settings_; }
  /// Goes on; after the last member it is at the first again. Returns whether a knob changed.
  bool advance();
  /// Goes to any member. Returns whether a knob changed.
  bool go_to(const Digits& digits);

 private:
  const Product* product_;
  Digits digits_;
  Settings settings_;
};

/// The meaning of a member's knobs, whatever its batch sizes, shape and recompute.
struct KnobConfig {
  TrainingConfig config;
  /// DeepSpeed divides the number of ranks by this in its rule of the batch sizes.
  std::int64_t ranks_per_micro_batch = 1;
};
KnobConfig knob_config(const JobSpec& job, const Settings& settings);

/// Takes the batch sizes of a member into its configuration, whose shape it has by now. Returns
/// them, with what is wrong with them in `why`.
BatchTriple take_batch(const JobSpec& job, const Product& product, const Digits& digits,
                       std::int64_t ranks_per_micro_batch, const GroupShape& shape,
                       TrainingConfig& config, std::string& why);

/// The experiment of a member, without its name.
Experiment experiment_of(const JobSpec& job, const SpacePart& part, const Digits& digits,
                         const GroupShape& shape, const TrainingConfig& config,
                         std::int64_t train_batch_size);

}  // namespace dstune
