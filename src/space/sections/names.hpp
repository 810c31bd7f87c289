#pragma once
/// The names of members: DeepSpeed's canonical names, with every value that varies. Local.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sections/products.hpp"

namespace dstune {

class VariedPlaces;

/// Letters, digits and . + - _ = stay, other characters become '-'; longer than 160 characters:
/// cut, with a hash of the whole.
std::string folder_safe(const std::string& name);

/// The names of a product's members, put together from parts that are made once. Two of them are
/// equal where the configs, the groups' shapes and the recompute modes are.
class NameTemplate {
 public:
  /// `with_shape`, `with_recompute`: the job has several of them.
  NameTemplate(const Product& product, bool with_shape, bool with_recompute);

  /// `digits`: the candidate of each dimension.
  [[nodiscard]] std::string name(const std::vector<std::size_t>& digits, int zero_stage,
                                 const BatchTriple& batch) const;

 private:
  /// A piece of the name: fixed, one of a dimension's, or a batch size.
  struct Part {
    Dimension::Kind kind = Dimension::Kind::knob;
    int dimension = -1;
    std::vector<std::string> texts;  ///< one, or one a candidate; a batch size's letters
    bool is_exact = false;           ///< a batch size with all its digits
  };

  void add_shapes(const Dimension& shapes);
  void add_parts(const Product& product, const VariedPlaces& places, const std::string& pointer,
                 const json::Value& value, const std::vector<std::string>& keys);
  void add_fixed(const std::string& text);

  std::vector<Part> parts_;
  bool is_short_ = true;  ///< only stage, accumulation and micro-batch differ
  std::vector<std::string> shapes_, recomputes_;  ///< what they append; empty: nothing
};

}  // namespace dstune
