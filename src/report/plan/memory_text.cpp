#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/report/dry_run.hpp"
#include "timeline.hpp"

namespace dstune {

namespace {

/// The instant at which the part after this one begins.
std::size_t end_of_part(const MemoryTimeline& timeline, std::size_t part) {
  return part + 1 < timeline.parts.size() ? timeline.parts[part + 1].first_instant
                                          : timeline.memories.front().instants.size();
}

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

}  // namespace

std::string memory_text(const MemoryTimeline& timeline, std::size_t width, std::size_t indent) {
  return Picture(timeline, width, indent).draw();
}

}  // namespace dstune
