#include "figure_tables.hpp"

#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dstune::bench {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

template <class Cells, class Written>
std::string joined(const Cells& cells, const char* between, const Written& written) {
  std::string text;
  for (const auto& cell : cells) {
    if (!text.empty()) text += between;
    text += written(cell);
  }
  return text;
}

}  // namespace

Figure::Figure(double value, int decimals) {
  if (!std::isfinite(value)) return;
  text_ = fmt::format("{:.{}f}", value, decimals);
  is_number_ = true;
}

std::string Figure::markdown() const {
  return text_.empty() ? "–" : text_;
}

std::string Figure::json() const {
  if (is_number_) return text_;
  return text_.empty() ? "null" : quoted(text_);
}

void FigureTables::begin(const std::string& name, const std::string& title,
                         const std::vector<std::string>& columns) {
  if (!is_json_) {
    if (!tables_.empty()) std::printf("\n");
    if (!title.empty()) std::printf("%s\n\n", title.c_str());
    const auto same = [](const std::string& text) { return text; };
    const auto rule = [](const std::string&) { return std::string("---"); };
    std::printf("| %s |\n| %s |\n", joined(columns, " | ", same).c_str(),
                joined(columns, " | ", rule).c_str());
  }
  tables_.push_back({name, columns, {}});
}

void FigureTables::row(const std::vector<Figure>& cells) {
  tables_.back().rows.push_back(cells);
  if (is_json_) return;
  std::printf("| %s |\n",
              joined(cells, " | ", [](const Figure& cell) { return cell.markdown(); }).c_str());
  std::fflush(stdout);
}

void FigureTables::end() {
  if (!is_json_) return;
  const auto row = [](const std::vector<Figure>& cells) {
    return fmt::format("[{}]", joined(cells, ", ", [](const Figure& cell) { return cell.json(); }));
  };
  const auto table = [&](const Table& one) {
    return fmt::format("{{\"name\": {},\n  \"columns\": [{}],\n  \"rows\": [\n    {}\n  ]}}",
                       quoted(one.name), joined(one.columns, ", ", quoted),
                       joined(one.rows, ",\n    ", row));
  };
  std::printf("{\"tables\": [%s]}\n", joined(tables_, ",\n", table).c_str());
}

}  // namespace dstune::bench
