#pragma once
/// Tables of values for scripts/figures.py (--json), of benches that print something else for
/// people. Local.

#include <cstdio>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"

namespace dstune::bench {

struct JsonTable {
  std::string name;
  std::vector<std::string> columns;
  std::vector<std::vector<json::Value>> rows = {};  ///< as many cells as columns
};

inline void print_json_tables(const std::vector<JsonTable>& tables) {
  json::Value printed = json::Value::array();
  for (const JsonTable& table : tables)
    printed.push_back({{"name", table.name}, {"columns", table.columns}, {"rows", table.rows}});
  std::printf("%s\n", json::Value{{"tables", printed}}.dump(1).c_str());
}

}  // namespace dstune::bench
