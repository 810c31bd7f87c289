#pragma once
/// The options of `dstune-mpi batch` alone. Local.

#include <vector>

#include "option_table.hpp"

namespace dstune {

/// In the order of --help.
std::vector<OptionRow> batch_option_rows();

}  // namespace dstune
