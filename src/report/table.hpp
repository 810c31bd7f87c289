#pragma once
/// Tables as Python's `tabulate` prints them in its "pipe" style, which DeepSpeed's summary uses.
/// Local.

#include <string>
#include <vector>

namespace dstune {

enum class ColumnType {
  text,    ///< to the left
  number,  ///< to the right, the decimal points below each other
};

struct Column {
  std::string header;
  ColumnType type = ColumnType::text;
  std::vector<std::string> cells;
};

/// All columns have the same number of cells. Ends with a line end.
std::string pipe_table(const std::vector<Column>& columns);

}  // namespace dstune
