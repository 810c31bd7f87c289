#include "page/plot_parts.hpp"

#include <cmath>

#include <fmt/format.h>

#include "dstune/base/units.hpp"

namespace dstune::plot {

std::vector<double> ticks_up_to(double most) {
  if (most <= 0 || !std::isfinite(most)) most = 1;
  const double rough = most / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power < rough) continue;
    step = factor * power;
    break;
  }
  std::vector<double> ticks = {0};
  while (ticks.back() < most) ticks.push_back(ticks.back() + step);
  return ticks;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     html_escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>",
                     x1, y1, x2, y2, style);
}

std::string open_svg(double height, const std::string& title) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", width,
                     height, html_escaped(title));
}

std::string value_axis(const Scale& scale, const std::vector<double>& ticks) {
  std::string out;
  for (const double tick : ticks) {
    const double y = scale.at(tick);
    out += line(left, y, width - right, y, "grid");
    out += text_at(left - 6, y + 4, "end", format_number(tick));
  }
  return out;
}

std::string marker(int stage, double x, double y, const std::string& title) {
  const std::string head =
      fmt::format("class=\"s{}\"><title>{}</title>", stage, html_escaped(title));
  switch (stage) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" {}</circle>", x, y, head);
    case 1:
      return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"9\" height=\"9\" {}</rect>",
                         x - 4.5, y - 4.5, head);
    case 2:
      return fmt::format("<path d=\"M{0:.1f} {2:.1f}L{1:.1f} {3:.1f}H{4:.1f}Z\" {5}</path>", x,
                         x + 6, y - 6, y + 5, x - 6, head);
    default:
      return fmt::format(
          "<path d=\"M{0:.1f} {2:.1f}L{1:.1f} {3:.1f}L{0:.1f} {4:.1f}L{5:.1f} "
          "{3:.1f}Z\" {6}</path>",
          x, x + 6, y - 6, y, y + 6, x - 6, head);
  }
}

std::string legend(const std::set<int>& stages, double y) {
  std::string out;
  double x = left + 10;
  for (const int stage : stages) {
    const std::string name = fmt::format("ZeRO {}", stage);
    out += marker(stage, x, y, name) + text_at(x + 12, y + 4, "start", name);
    x += 90;
  }
  return out;
}

}  // namespace dstune::plot
