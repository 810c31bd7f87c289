#pragma once
/// results.csv: one row a member, whatever became of it. Local.

#include <string>

#include "dstune/report/results.hpp"

namespace dstune {

/// RFC 4180: a header, CRLF line ends, quotes where a field needs them. An empty field: no value.
std::string results_csv(const Report& report);

}  // namespace dstune
