#pragma once
/// What tells members of a space apart: their names, and what they make the step do. Local.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/space/search_space.hpp"

namespace dstune {

/// What one key of a config adds to its canonical name, with a closing "_" where it adds something.
std::string canonical_part(const std::string& key, const json::Value& value,
                           const std::vector<std::string>& keys, bool omit_values);

/// Letters, digits and . + - _ = stay, other characters become '-'; longer than 160 characters:
/// cut, with a hash of the whole.
std::string folder_safe(const std::string& name);

/// The canonical names of a product's members, put together from parts that are made once.
class NameTemplate {
 public:
  /// `with_shape`, `with_recompute`: the job has several of them.
  NameTemplate(const Product& product, bool with_shape, bool with_recompute);

  /// Not yet unique. `digits`: the candidate of each dimension.
  [[nodiscard]] std::string name(const std::vector<std::size_t>& digits, int zero_stage,
                                 const BatchTriple& batch) const;

 private:
  /// A piece of the name: fixed, one of a dimension's, or a batch size.
  struct Part {
    Dimension::Kind kind = Dimension::Kind::knob;
    int dimension = -1;
    std::vector<std::string> texts;  ///< one, or one a candidate; a batch size's letters
  };

  void add_parts(const Product& product, const std::string& key, const json::Value& value,
                 const std::string& pointer, const std::vector<std::string>& keys);

  std::vector<Part> parts_;
  bool is_short_ = true;  ///< only stage, accumulation and micro-batch differ
  std::vector<std::string> shapes_, recomputes_;  ///< what they append; empty: nothing
};

// Which members run alike.

/// The configuration with every knob that does not act at its ZeRO stage at its default.
TrainingConfig effective_config(const TrainingConfig& config);

/// 128 bits of a hash: among millions of members, equal ones are taken for the same thing.
struct Fingerprint {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Fingerprint&) const = default;
};
struct FingerprintHash {
  std::size_t operator()(const Fingerprint& fingerprint) const { return fingerprint.low; }
};

Fingerprint fingerprint(std::string_view text);
/// Of everything that decides what runs.
Fingerprint fingerprint(const TrainingConfig& config, const GroupShape& shape);

/// "reduce_bucket_size has no effect at stage 0": what differs between the members of `product`
/// with these candidates, and why it makes no difference; "" where nothing differs.
std::string twin_reason(const Product& product, const std::vector<std::size_t>& digits,
                        const std::vector<std::size_t>& others, int zero_stage);

}  // namespace dstune
