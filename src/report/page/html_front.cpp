#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "page/html_parts.hpp"

namespace dstune {

namespace {

using namespace plot;

/// More points hide each other.
constexpr std::size_t max_beaten_shown = 1000;
constexpr std::size_t max_listed = 100;

std::string gpus_text(int count) {
  return fmt::format("{} GPU{}", count, count == 1 ? "" : "s");
}

std::string front_plot(const Answer& answer) {
  double most_value = 0;
  double max_bytes = 0;
  for (const Offer& offer : answer.offers) {
    most_value = std::max(most_value, offer.value);
    max_bytes = std::max(max_bytes, static_cast<double>(offer.memory_bytes));
  }
  const bool is_large = max_bytes >= 4 * 0x1p30;
  const double unit_bytes = is_large ? 0x1p30 : 0x1p20;
  constexpr double height = 340;
  const std::vector<double> x_ticks = ticks_up_to(max_bytes / unit_bytes);
  const std::vector<double> y_ticks = ticks_up_to(most_value);
  const Scale x{x_ticks.back(), left, width - right};
  const Scale y{y_ticks.back(), height - 48, 30};
  const auto x_of = [&](const Offer& offer) {
    return x.at(static_cast<double>(offer.memory_bytes) / unit_bytes);
  };
  std::string out =
      open_svg(height, fmt::format("{} against memory, by number of GPUs", to_text(answer.metric)));
  out += value_axis(y, y_ticks);
  for (const double tick : x_ticks)
    out += text_at(x.at(tick), height - 28, "middle", format_number(tick));
  out += text_at((left + width) / 2, height - 8, "middle",
                 fmt::format("memory of the fullest rank, {}", is_large ? "GiB" : "MiB"));

  std::set<int> stages;
  std::map<int, std::vector<const Offer*>> front;
  std::size_t beaten = 0;
  for (const Offer& offer : answer.offers) {
    if (offer.is_on_front) front[offer.num_gpus].push_back(&offer);
    if (offer.is_on_front || beaten++ >= max_beaten_shown) continue;
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" class=\"beaten\"/>",
                       x_of(offer), y.at(offer.value));
  }
  for (auto& [num_gpus, of_size] : front) {
    std::sort(of_size.begin(), of_size.end(), [](const Offer* one, const Offer* other) {
      return one->memory_bytes < other->memory_bytes;
    });
    std::string points;
    std::string markers;
    for (const Offer* offer : of_size) {
      const Row& row = *answer.standings[offer->row].row;
      const int stage = row.planned.experiment.config.zero_stage;
      stages.insert(stage);
      points += fmt::format("{:.1f},{:.1f} ", x_of(*offer), y.at(offer->value));
      markers += marker(stage, x_of(*offer), y.at(offer->value),
                        fmt::format("{}: {} {}, {} a rank, {}", row.planned.experiment.name,
                                    format_number(offer->value), unit_text(answer.metric),
                                    format_bytes(offer->memory_bytes), gpus_text(num_gpus)));
    }
    out += fmt::format("<polyline points=\"{}\" class=\"front\"/>", points) + markers;
    const Offer& last = *of_size.back();
    const bool is_at_edge = x_of(last) > width - right - 60;
    out += text_at(x_of(last) + (is_at_edge ? -10 : 10), y.at(last.value) - 8,
                   is_at_edge ? "end" : "start", gpus_text(num_gpus));
  }
  return out + legend(stages, 14) + "</svg>";
}

std::string front_table(const Answer& answer) {
  std::string out = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"the front\"><table>\n"
      "<thead><tr><th scope=\"col\" class=\"number\">GPUs</th><th scope=\"col\" "
      "class=\"number\">{} ({})</th><th scope=\"col\" class=\"number\">samples/s a GPU</th><th "
      "scope=\"col\" class=\"number\">memory of a rank</th><th scope=\"col\">experiment</th>"
      "</tr></thead>\n<tbody>\n",
      to_text(answer.metric), unit_text(answer.metric));
  std::size_t listed = 0;
  for (const Offer& offer : answer.offers) {
    if (!offer.is_on_front || listed++ >= max_listed) continue;
    const Row& row = *answer.standings[offer.row].row;
    const auto& efficiency = offer.throughput_per_gpu;
    out += fmt::format(
        "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>"
        "<td class=\"number\">{}</td><td>{}</td></tr>\n",
        offer.num_gpus, format_number(offer.value), efficiency ? format_number(*efficiency) : "",
        format_bytes(offer.memory_bytes), html_escaped(row.planned.experiment.name));
  }
  out += "</tbody></table></div>\n";
  if (listed > max_listed)
    out += fmt::format("<p class=\"note\">{} more are in results.csv.</p>\n", listed - max_listed);
  return out;
}

}  // namespace

std::string front_section(const Answer& answer) {
  const std::vector<Offer>& offers = answer.offers;
  if (offers.empty()) return "";
  const auto on_front = std::count_if(offers.begin(), offers.end(),
                                      [](const Offer& offer) { return offer.is_on_front; });
  if (on_front == 1 && offers.size() > 1)
    return "<section>\n<h2>Fewer GPUs or less memory</h2>\n<p class=\"note\">Nothing is to be had "
           "for less: the best takes as few GPUs and as little memory as any that was "
           "measured.</p>\n</section>\n";
  if (on_front < 2) return "";
  return fmt::format(
      "<section>\n<h2>Fewer GPUs or less memory</h2>\n<p class=\"note\">On the lines is what "
      "nothing beats: nothing that was measured is better in {}, GPUs or memory without being "
      "worse in another. Grey is the rest. Memory is your own training's, where it was "
      "planned.</p>\n<figure>{}</figure>\n{}</section>\n",
      to_text(answer.metric), front_plot(answer), front_table(answer));
}

}  // namespace dstune
