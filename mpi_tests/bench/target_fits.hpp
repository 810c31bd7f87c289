#pragma once
/// Constants that are fitted to recorded tables, and what they say of them, printed. Local.

#include <vector>

#include "dstune/core/target_time.hpp"
#include "json_tables.hpp"
#include "target_tables.hpp"

namespace dstune::bench {

/// Constants, fitted to all tables together, and how near they come to each.
void print_constants(const std::vector<Table>& tables);
/// … with factors of the host, the network and the kernels for each table in fp32.
void print_hierarchy(const std::vector<Table>& tables);
/// Each table in fp32 by such a fit to all others.
void print_left_out(const std::vector<Table>& tables, const TimeCalibration& constants);
[[nodiscard]] std::vector<JsonTable> tables_of_left_out(const std::vector<Table>& tables,
                                                        const TimeCalibration& constants);
/// The scale of each precision beside these costs.
void print_scales(const std::vector<Table>& tables, const TimeCalibration& constants);
/// The three factors of each table beside these constants.
void print_factors(const std::vector<Table>& tables, const TimeCalibration& constants);
[[nodiscard]] JsonTable table_of_factors(const std::vector<Table>& tables,
                                         const TimeCalibration& constants);

}  // namespace dstune::bench
