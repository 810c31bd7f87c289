#pragma once
/// The canonical names of a product's members, put together from parts that are made once. Local.

#include <string>
#include <vector>

#include "dstune/space/search_space.hpp"

namespace dstune {

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

}  // namespace dstune
