#include "parts/pieces.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune::plan {
namespace {

/// Query, key and value; the width of the query is that of the projection behind the attention.
void cut_qkv(const ParameterTable& table, int index, std::vector<Piece>& pieces) {
  const Parameter& merged = table.all()[static_cast<std::size_t>(index)];
  const int projection = table.find(merged.unit, ParameterRole::projection_weight);
  require(projection >= 0, "attention has a projection");
  const std::int64_t query = table.all()[static_cast<std::size_t>(projection)].columns;
  const std::int64_t key = (merged.rows - query) / 2;
  std::int64_t first = 0;
  for (const std::int64_t rows : {query, key, key}) {
    pieces.push_back({index, first, rows * merged.columns});
    first += rows * merged.columns;
  }
}

}  // namespace

std::vector<Piece> cut_into_pieces(const ParameterTable& table) {
  std::vector<Piece> pieces;
  pieces.reserve(table.all().size() * 2);
  for (std::size_t i = 0; i < table.all().size(); ++i) {
    const Parameter& parameter = table.all()[i];
    const int index = static_cast<int>(i);
    const std::int64_t parts = 1 + std::count(parameter.name.begin(), parameter.name.end(), '+');
    const bool attention =
        parameter.role == ParameterRole::qkv_weight || parameter.role == ParameterRole::qkv_bias;
    if (attention && parts == 3) {
      cut_qkv(table, index, pieces);
      continue;
    }
    const std::int64_t elements = parameter.elements() / parts;
    for (std::int64_t part = 0; part < parts; ++part)
      pieces.push_back({index, part * elements, elements});
  }
  return pieces;
}

}  // namespace dstune::plan
