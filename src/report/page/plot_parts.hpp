#pragma once
/// What the figures of report.html are made of: SVG in a page 640 units wide. Local.

#include <set>
#include <string>
#include <vector>

#include "page/html_plots.hpp"

namespace dstune::plot {

inline constexpr double width = 640;
inline constexpr double left = 70;
inline constexpr double right = 16;

/// Round numbers for an axis from 0 that holds `most`: about five of them.
std::vector<double> ticks_up_to(double most);

/// Values from 0 on a stretch of the picture; `to` may be the smaller one.
struct Scale {
  double most = 1;
  double from = 0;
  double to = 1;
  [[nodiscard]] double at(double value) const { return from + (to - from) * value / most; }
};

std::string text_at(double x, double y, const char* anchor, const std::string& text);
std::string line(double x1, double y1, double x2, double y2, const char* style);
std::string open_svg(double height, const std::string& title);
/// A vertical axis with its grid.
std::string value_axis(const Scale& scale, const std::vector<double>& ticks);
/// A shape a stage, so that colour is not all that tells them apart.
std::string marker(int stage, double x, double y, const std::string& title);
std::string legend(const std::set<int>& stages, double y);

}  // namespace dstune::plot
