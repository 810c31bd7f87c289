#pragma once
/// The parameters of the Hugging Face model inside ours: where ours merges several matrices into
/// one, DeepSpeed partitions and gathers each of them. In the flat order.

#include <cstdint>
#include <vector>

#include "dstune/model/parameter_table.hpp"

namespace dstune::plan {

struct Piece {
  int parameter = 0;       ///< of the table
  std::int64_t first = 0;  ///< element of it
  std::int64_t elements = 0;
};

/// Pieces [first, last) of the flat order.
struct PieceRange {
  int first = 0, last = 0;
  [[nodiscard]] bool empty() const { return first == last; }
  [[nodiscard]] int size() const { return last - first; }
};

[[nodiscard]] std::vector<Piece> cut_into_pieces(const ParameterTable& table);

}  // namespace dstune::plan
