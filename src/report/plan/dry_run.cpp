#include "dstune/report/dry_run.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "answer.hpp"
#include "head.hpp"
#include "sentences.hpp"
#include "table.hpp"
#include "words.hpp"

namespace dstune {

namespace {

constexpr std::size_t max_lines = 15;

/// The lines that the training command and the document's gaps lead to, at most `room` of them.
std::vector<std::string> understood_lines(const DryRun& plan, std::size_t room) {
  std::vector<std::string> lines;
  for (const std::string& line : plan.from_command) lines.push_back(line + ".");
  for (const std::string& assumption : plan.assumptions)
    lines.push_back("Assumed: " + assumption + ".");
  if (lines.size() <= room) return lines;
  const std::size_t num_left_out = lines.size() - room + 1;
  lines.resize(room - 1);
  lines.push_back(fmt::format("{} more that are assumed: --all shows them.", num_left_out));
  return lines;
}

/// Drops lines of the highest rank, the last first, until so many are left or all have to stay.
void keep_at_most(std::size_t count, std::vector<PlanLine>& lines) {
  while (lines.size() > count) {
    const auto last = std::ranges::max_element(lines.rbegin(), lines.rend(), {}, &PlanLine::rank);
    if (last->rank == 0) return;
    lines.erase(std::next(last).base());
  }
}

}  // namespace

std::string dry_run_text(const DryRun& plan, const DryRunStyle& style) {
  const bool is_whole = style.all || style.verbose;
  const PlanAnswer answer = answer_of(plan);
  std::vector<std::string> head = head_lines(plan);
  std::vector<PlanLine> sentences = answer_lines(plan, answer, is_whole);
  std::size_t room_understood = plan.from_command.size() + plan.assumptions.size();
  if (!is_whole) {
    // The blank line, what the training command says, and one line of assumptions.
    const std::size_t understood = std::min<std::size_t>(2, plan.from_command.size()) +
                                   std::min<std::size_t>(1, plan.assumptions.size());
    keep_at_most(max_lines - head.size() - 1 - understood, sentences);
    room_understood = std::min(room_understood, max_lines - head.size() - 1 - sentences.size());
  }
  std::string out;
  const auto print = [&](const std::string& text) {
    for (const std::string& line : plan_words::wrapped(text, style.width)) out += line + "\n";
  };
  for (std::string& line : understood_lines(plan, room_understood)) head.push_back(std::move(line));
  for (const std::string& line : head) print(line);
  if (!head.empty()) out += "\n";
  if (is_whole) out += table_text(plan, answer, style) + "\n";
  for (const PlanLine& line : sentences) print(line.text);
  return out;
}

}  // namespace dstune
