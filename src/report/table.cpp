#include "table.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace dstune {

namespace {

/// How many characters stand behind the decimal point (or behind the exponent's letter where there
/// is no point); −1 for an integer.
std::ptrdiff_t places_behind_point(const std::string& cell) {
  std::size_t at = cell.rfind('.');
  if (at == std::string::npos) at = cell.find_last_of("eE");
  if (at == std::string::npos) return -1;
  return static_cast<std::ptrdiff_t>(cell.size() - at) - 1;
}

void align_decimal_points(std::vector<std::string>& cells) {
  std::ptrdiff_t most = -1;
  for (const std::string& cell : cells) most = std::max(most, places_behind_point(cell));
  for (std::string& cell : cells)
    cell.append(static_cast<std::size_t>(most - places_behind_point(cell)), ' ');
}

/// Cells, the header first, at the column's width.
std::vector<std::string> padded(const Column& column) {
  std::vector<std::string> cells = column.cells;
  if (column.type == ColumnType::number) align_decimal_points(cells);
  std::size_t width = column.header.size() + 2;
  for (const std::string& cell : cells) width = std::max(width, cell.size());
  cells.insert(cells.begin(), column.header);
  for (std::string& cell : cells) {
    const std::size_t at = column.type == ColumnType::number ? 0 : cell.size();
    cell.insert(at, width - cell.size(), ' ');
  }
  return cells;
}

std::string rule(ColumnType type, std::size_t width) {
  const std::string dashes(width + 1, '-');
  return type == ColumnType::number ? dashes + ':' : ':' + dashes;
}

}  // namespace

std::string pipe_table(const std::vector<Column>& columns) {
  std::vector<std::vector<std::string>> cells;
  cells.reserve(columns.size());
  for (const Column& column : columns) cells.push_back(padded(column));
  std::string out;
  const std::size_t num_lines = cells.empty() ? 0 : cells.front().size();
  for (std::size_t line = 0; line < num_lines; ++line) {
    for (const auto& column : cells) out += fmt::format("| {} ", column[line]);
    out += "|\n";
    if (line > 0) continue;
    for (std::size_t i = 0; i < columns.size(); ++i)
      out += fmt::format("|{}", rule(columns[i].type, cells[i].front().size()));
    out += "|\n";
  }
  return out;
}

}  // namespace dstune
