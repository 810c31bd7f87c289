#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/report/dry_run.hpp"
#include "embedded/page.hpp"
#include "page/html_parts.hpp"

namespace dstune {

namespace {

std::int64_t total_bytes(const MemoryTimeline::Instant& instant) {
  return std::accumulate(instant.begin(), instant.end(), std::int64_t{0});
}

/// The fullest of the instants [first, end), at least one.
const MemoryTimeline::Instant& fullest_instant(const MemoryTimeline::Memory& memory,
                                               std::size_t first, std::size_t end) {
  const auto begin = memory.instants.begin();
  return *std::max_element(
      begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(end),
      [](const auto& one, const auto& other) { return total_bytes(one) < total_bytes(other); });
}

/// Instants [first, end) cut into `count` stretches of about the same length, or into as many as
/// there are: where each begins, and `end`.
std::vector<std::size_t> stretches(std::size_t first, std::size_t end, std::size_t count) {
  const std::size_t length = end - first;
  count = std::clamp<std::size_t>(count, 1, length);
  std::vector<std::size_t> begins;
  for (std::size_t index = 0; index <= count; ++index)
    begins.push_back(first + index * length / count);
  return begins;
}

/// The instant at which the part after this one begins.
std::size_t end_of_part(const MemoryTimeline& timeline, std::size_t part) {
  return part + 1 < timeline.parts.size() ? timeline.parts[part + 1].first_instant
                                          : timeline.memories.front().instants.size();
}

/// The categories that hold anything.
std::vector<std::size_t> used_categories(const MemoryTimeline& timeline) {
  std::vector<std::size_t> used;
  for (std::size_t category = 0; category < timeline.categories.size(); ++category) {
    const auto holds_any = [&](const MemoryTimeline::Memory& memory) {
      return std::any_of(memory.instants.begin(), memory.instants.end(),
                         [&](const auto& instant) { return instant[category] > 0; });
    };
    if (std::any_of(timeline.memories.begin(), timeline.memories.end(), holds_any))
      used.push_back(category);
  }
  return used;
}

// Pictures as text.

constexpr std::size_t default_width = 100;
constexpr std::size_t min_bar = 8;
/// Lines of a picture, unless it has more parts.
constexpr std::size_t default_lines = 24;
constexpr std::size_t name_width = 10;
constexpr std::size_t bytes_width = 10;

/// The first letter of each category, small where it is taken.
std::string letters_of(const std::vector<std::string>& categories) {
  std::string letters;
  for (const std::string& category : categories) {
    const auto capital = static_cast<char>(std::toupper(static_cast<unsigned char>(category[0])));
    letters.push_back(letters.find(capital) == letters.npos ? capital : category[0]);
  }
  return letters;
}

/// Each category as long as its share of `most`; rounded at its end, so that the sum is right.
std::string bar(const MemoryTimeline::Instant& instant, const std::string& letters,
                std::int64_t most, std::size_t width) {
  std::string text;
  std::int64_t below = 0;
  for (std::size_t category = 0; category < instant.size(); ++category) {
    below += instant[category];
    const double share = static_cast<double>(below) / static_cast<double>(most);
    const auto end = static_cast<std::size_t>(std::lround(share * static_cast<double>(width)));
    text.resize(std::max(text.size(), end), letters[category]);
  }
  return text;
}

class Picture {
 public:
  Picture(const MemoryTimeline& timeline, std::size_t width, std::size_t indent)
      : timeline_(timeline), indent_(indent, ' '), letters_(letters_of(timeline.categories)) {
    const std::size_t line = width == 0 ? default_width : width;
    const std::size_t beside = indent + name_width + bytes_width + 2;
    bar_width_ = line > beside + min_bar ? line - beside : min_bar;
  }

  std::string draw() {
    std::string legend;
    for (const std::size_t category : used_categories(timeline_))
      legend += fmt::format("{}{} {}", legend.empty() ? "" : ", ", letters_[category],
                            timeline_.categories[category]);
    add_line(legend);
    for (const MemoryTimeline::Memory& memory : timeline_.memories) draw(memory);
    return text_;
  }

 private:
  void add_line(const std::string& line) { text_ += indent_ + line + "\n"; }

  void draw(const MemoryTimeline::Memory& memory) {
    const std::int64_t most =
        std::max<std::int64_t>(1, total_bytes(fullest_instant(memory, 0, memory.instants.size())));
    add_line(fmt::format("{}, at most {} at once", memory.name, format_bytes(most)));
    std::string name;
    for (std::size_t part = 0; part < timeline_.parts.size(); ++part) {
      const MemoryTimeline::Part& each = timeline_.parts[part];
      if (each.name != name && !each.phase.empty()) add_line(each.name);
      name = each.name;
      const std::size_t end = end_of_part(timeline_, part);
      const std::size_t lines =
          (default_lines * (end - each.first_instant) + memory.instants.size() / 2) /
          memory.instants.size();
      const auto begins = stretches(each.first_instant, end, lines);
      for (std::size_t line = 0; line + 1 < begins.size(); ++line) {
        const auto& instant = fullest_instant(memory, begins[line], begins[line + 1]);
        const std::string& title = each.phase.empty() ? each.name : each.phase;
        add_line(fmt::format("{:<{}}{:>{}}  {}", line == 0 ? title : "", name_width,
                             format_bytes(total_bytes(instant)), bytes_width,
                             bar(instant, letters_, most, bar_width_)));
      }
    }
  }

  const MemoryTimeline& timeline_;
  std::string indent_;
  std::string letters_;
  std::size_t bar_width_;
  std::string text_;
};

// Pictures as SVG.

// Sizes of the whole picture, in the units of its view box.
constexpr double picture_width = 960;
constexpr double left = 84;
constexpr double right = 24;
constexpr double plot_width = picture_width - left - right;
constexpr double plot_height = 300;
constexpr double above_plot = 66;  ///< a memory's heading and the names of its parts
constexpr double below_plot = 30;
constexpr double heading_height = 54;
constexpr double legend_row = 22;
constexpr std::size_t legend_columns = 4;
constexpr std::size_t max_columns = 432;  ///< two units wide: finer is not to be seen

/// One a category, in their order; apart from each other in both schemes and for the colour-blind
/// by their order and the lines between them.
constexpr std::array<std::string_view, 8> colours = {"#4477aa", "#ee8866", "#44bb99", "#eedd88",
                                                     "#aa6699", "#99ddff", "#bbbbbb", "#ffaabb"};

/// For elements alone.
std::string svg_escaped(std::string_view text) {
  return html_escaped(text, "&<>");
}

std::string text_at(double x, double y, std::string_view attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}{}>{}</text>\n", x, y,
                     attributes.empty() ? "" : " ", attributes, svg_escaped(text));
}

/// A power of two, so that four to seven lines of the grid show.
std::int64_t grid_step(std::int64_t most) {
  std::int64_t step = 1;
  while (most / step > 6) step *= 2;
  return step;
}

class Drawing {
 public:
  Drawing(const MemoryTimeline& timeline, const std::string& name)
      : timeline_(timeline), name_(name), used_(used_categories(timeline)) {}

  std::string draw() {
    const double legend_height =
        legend_row * std::ceil(static_cast<double>(used_.size()) / legend_columns);
    const double memory_height = above_plot + plot_height + below_plot;
    const double height = heading_height + legend_height +
                          memory_height * static_cast<double>(timeline_.memories.size()) + 12;
    open(height);
    double y = heading_height;
    add_legend(y);
    y += legend_height;
    for (const MemoryTimeline::Memory& memory : timeline_.memories) {
      add_memory(memory, y);
      y += memory_height;
    }
    return svg_ + "</svg>\n";
  }

 private:
  void open(double height) {
    std::string description;
    for (const MemoryTimeline::Memory& memory : timeline_.memories) {
      const auto& peak = fullest_instant(memory, 0, memory.instants.size());
      description += fmt::format("{} memory: at most {} at once", memory.name,
                                 format_bytes(total_bytes(peak)));
      for (const std::size_t category : used_) {
        if (peak[category] == 0) continue;
        description +=
            fmt::format(", {} {}", timeline_.categories[category], format_bytes(peak[category]));
      }
      description += ". ";
    }
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\" aria-labelledby=\"title description\">\n"
        "<title id=\"title\">Planned memory of a rank: {2}</title>\n"
        "<desc id=\"description\">{3}</desc>\n<style>\n{4}</style>\n"
        "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        picture_width, height, svg_escaped(name_), svg_escaped(description),
        embedded::memory_style);
    svg_ += text_at(left, 26, "class=\"title\"", name_);
    svg_ += text_at(left, 45, "class=\"faint\"",
                    "planned memory of a rank over the operations of a step, in program order");
  }

  void add_legend(double y) {
    for (std::size_t number = 0; number < used_.size(); ++number) {
      const double x =
          left + plot_width / legend_columns * static_cast<double>(number % legend_columns);
      const double row = y + legend_row * static_cast<double>(number / legend_columns);
      svg_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"13\" height=\"13\" rx=\"2\" fill=\"{}\"/>\n", x,
          row + 3, colours[used_[number] % colours.size()]);
      svg_ += text_at(x + 19, row + 14, "", timeline_.categories[used_[number]]);
    }
  }

  void add_line(const char* style, double x1, double y1, double x2, double y2) {
    svg_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1,
        x2, y1, y2);
  }

  void add_memory(const MemoryTimeline::Memory& memory, double y) {
    const std::size_t num_instants = memory.instants.size();
    const auto& peak = fullest_instant(memory, 0, num_instants);
    const std::int64_t most = std::max<std::int64_t>(1, total_bytes(peak));
    const std::int64_t step = grid_step(most);
    const double top = y + above_plot;
    const double bottom = top + plot_height;
    const double scale_bytes = static_cast<double>((most + step - 1) / step * step);
    const auto height_of = [&](std::int64_t bytes) {
      return bottom - plot_height * static_cast<double>(bytes) / scale_bytes;
    };
    const auto place_of = [&](std::size_t instant) {
      return left + plot_width * static_cast<double>(instant) / static_cast<double>(num_instants);
    };

    svg_ += text_at(left, y + 24, "font-weight=\"600\"",
                    fmt::format("{}: at most {} at once", memory.name, format_bytes(most)));
    for (std::int64_t bytes = 0; static_cast<double>(bytes) <= scale_bytes; bytes += step) {
      add_line("grid", left, height_of(bytes), left + plot_width, height_of(bytes));
      svg_ += text_at(left - 8, height_of(bytes) + 4, "class=\"faint\" text-anchor=\"end\"",
                      bytes == 0 ? "0" : format_bytes(bytes));
    }
    add_areas(memory, place_of, height_of);
    add_parts(top, bottom, place_of);
    add_line("peak", left, height_of(most), left + plot_width, height_of(most));
  }

  template <class PlaceOf, class HeightOf>
  void add_areas(const MemoryTimeline::Memory& memory, const PlaceOf& place_of,
                 const HeightOf& height_of) {
    const auto begins = stretches(0, memory.instants.size(), max_columns);
    std::vector<std::int64_t> below(begins.size() - 1, 0);
    for (const std::size_t category : used_) {
      std::string upper, lower;
      bool holds_any = false;
      for (std::size_t column = 0; column + 1 < begins.size(); ++column) {
        const auto& instant = fullest_instant(memory, begins[column], begins[column + 1]);
        const double from = place_of(begins[column]);
        const double to = place_of(begins[column + 1]);
        const double low = height_of(below[column]);
        below[column] += instant[category];
        holds_any = holds_any || instant[category] > 0;
        const double high = height_of(below[column]);
        upper +=
            column == 0 ? fmt::format("M{:.1f} {:.1f}", from, high) : fmt::format("V{:.1f}", high);
        upper += fmt::format("H{:.1f}", to);
        lower = fmt::format("V{:.1f}H{:.1f}", low, from) + lower;
      }
      if (!holds_any) continue;
      svg_ += fmt::format("<path class=\"area\" fill=\"{}\" d=\"{}{}Z\"><title>{}</title></path>\n",
                          colours[category % colours.size()], upper, lower,
                          svg_escaped(timeline_.categories[category]));
    }
  }

  /// Names above the plot; what is too narrow for its name goes without.
  template <class PlaceOf>
  void add_parts(double top, double bottom, const PlaceOf& place_of) {
    constexpr double letter_width = 6.8;
    for (std::size_t part = 0; part < timeline_.parts.size(); ++part) {
      const MemoryTimeline::Part& each = timeline_.parts[part];
      const double x = place_of(each.first_instant);
      const double room = place_of(end_of_part(timeline_, part)) - x;
      const bool begins_group = part == 0 || timeline_.parts[part - 1].name != each.name;
      add_line("mark", x, begins_group ? top - 34 : top - 16, x, bottom);
      const auto fits = [&](const std::string& text, double width) {
        return letter_width * static_cast<double>(text.size()) < width;
      };
      if (!each.phase.empty() && fits(each.phase, room))
        svg_ += text_at(x + 4, top - 6, "class=\"faint\"", each.phase);
      if (!begins_group) continue;
      double group = room;
      for (std::size_t next = part + 1;
           next < timeline_.parts.size() && timeline_.parts[next].name == each.name; ++next)
        group = place_of(end_of_part(timeline_, next)) - x;
      if (fits(each.name, group)) {
        svg_ += text_at(x + 4, top - 22, "", each.name);
      } else if (part + 1 == timeline_.parts.size()) {  // the update, which is short
        svg_ += text_at(left + plot_width, top - 22, "text-anchor=\"end\"", each.name);
      }
    }
  }

  const MemoryTimeline& timeline_;
  const std::string& name_;
  const std::vector<std::size_t> used_;
  std::string svg_;
};

}  // namespace

std::string memory_text(const MemoryTimeline& timeline, std::size_t width, std::size_t indent) {
  return Picture(timeline, width, indent).draw();
}

std::string memory_svg(const MemoryTimeline& timeline, const std::string& name) {
  return Drawing(timeline, name).draw();
}

}  // namespace dstune
