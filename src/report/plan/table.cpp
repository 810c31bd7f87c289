#include "table.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "parts.hpp"
#include "words.hpp"

namespace dstune {

namespace {

/// A table so long that its header is off the screen at its end.
constexpr std::size_t long_table = 40;
/// Less is no room for a sentence.
constexpr std::size_t min_reason_width = 30;
constexpr std::string_view gap = "  ";
constexpr std::size_t picture_indent = 4;

/// A column before the name.
struct PlanColumn {
  std::string header;
  bool is_number = true;
  bool is_dropped_where_empty = false;
  std::size_t width = 0;  ///< 0: it is dropped
};

std::string aligned(const std::string& text, std::size_t width, bool to_the_right) {
  const std::string blanks(width - std::min(width, plan_words::num_characters(text)), ' ');
  return to_the_right ? blanks + text : text + blanks;
}

std::string group_text(const GroupShape& shape) {
  if (shape.num_nodes == 1) return std::to_string(shape.size());
  return fmt::format("{} ({}x{})", shape.size(), shape.num_nodes, shape.num_gpus);
}

/// The verdict, and whether the member may run where that is something else.
std::string standing_text(const PlannedExperiment& planned) {
  const MemoryVerdict verdict = planned.predicted.verdict;
  if (planned.status == PlanStatus::pruned || verdict == MemoryVerdict::unknown)
    return std::string(to_text(planned.status));
  const bool runs = planned.status == PlanStatus::planned;
  const bool may_run = verdict == MemoryVerdict::fits || verdict == MemoryVerdict::edge;
  std::string text(plan_words::verdict_text(verdict));
  if (may_run && !runs) text += ", not here";
  return text;
}

/// The cells before the name; `number`: among those that are planned.
TableRow cells_of(const PlannedExperiment& planned, int number, bool shows_here) {
  const Prediction& predicted = planned.predicted;
  const bool is_predicted = planned.status != PlanStatus::pruned;
  const auto bytes = [&](std::int64_t amount) {
    return is_predicted && amount > 0 ? format_bytes(amount) : "";
  };
  // A plug-in's memory is its own affair.
  const std::string here = is_predicted && shows_here && predicted.peak_memory_bytes == 0
                               ? "not predicted"
                               : bytes(shows_here ? predicted.peak_memory_bytes : 0);
  return {planned.status == PlanStatus::planned ? std::to_string(number) : "",
          standing_text(planned),
          group_text(planned.experiment.shape),
          bytes(predicted.target_memory_bytes),
          bytes(predicted.target_memory_shown_bytes),
          bytes(plan_words::node_host_bytes(planned)),
          here,
          is_predicted ? plan_words::speed_words(predicted, "–") : ""};
}

/// "buckets 1.9 GiB, activations 3 MiB", the largest first.
std::string categories_text(const std::map<std::string, std::int64_t>& categories) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [name, bytes] : categories)
    if (bytes > 0) sorted.emplace_back(-bytes, name);
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const auto& [bytes, name] : sorted)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(-bytes));
  return text;
}

/// The remarks below or beside a name: the reason, and with --verbose the parts of the memory.
std::vector<std::string> remarks_on(const PlannedExperiment& planned, bool verbose) {
  std::vector<std::string> remarks;
  const std::string& because = planned.predicted.because;
  // The columns have the numbers of a reason, and its brackets the parts.
  if (!because.empty() && !verbose)
    remarks.push_back(because);
  else if (!planned.reason.empty())
    remarks.push_back(verbose || planned.status == PlanStatus::pruned
                          ? planned.reason
                          : plan_words::without_brackets(planned.reason));
  if (!verbose) return remarks;
  for (const RankMemory& alike : planned.predicted.ranks) {
    const std::string who = planned.predicted.ranks.size() == 1
                                ? std::string(alike.last == 0 ? "the rank" : "every rank")
                                : fmt::format("ranks {} to {}", alike.first, alike.last);
    remarks.push_back(fmt::format("{}: {}", who, categories_text(alike.categories)));
  }
  return remarks;
}

class Table {
 public:
  Table(const DryRun& plan, const PlanAnswer& answer, const DryRunStyle& style)
      : plan_(&plan), style_(&style) {
    for (const SizeChain& chain : answer.chains) leave_out(chain);
    int number = 1;
    for (std::size_t member = 0; member < plan.experiments.size(); ++member) {
      const PlannedExperiment& planned = plan.experiments[member];
      rows_.push_back(cells_of(planned, number, plan.runs_here || style.verbose));
      if (planned.status == PlanStatus::planned) ++number;
      if (left_out_.contains(member)) continue;
      name_width_ = std::max(name_width_, planned.experiment.name.size());
      has_remarks_ = has_remarks_ || !remarks_on(planned, style.verbose).empty();
      for (std::size_t index = 0; index < columns_.size(); ++index)
        columns_[index].width =
            std::max(columns_[index].width, plan_words::num_characters(rows_.back()[index]));
    }
    for (PlanColumn& column : columns_) {
      if (column.is_dropped_where_empty && column.width == 0) continue;
      column.width = std::max(column.width, column.header.size());
      name_at_ += column.width + gap.size();
    }
  }

  [[nodiscard]] std::string text() const {
    std::string out = header();
    std::size_t num_rows = 0;
    for (std::size_t member = 0; member < plan_->experiments.size(); ++member) {
      if (const auto place = left_out_.find(member); place != left_out_.end()) {
        out += place->second;
        continue;
      }
      out += lines_of(member) + picture(plan_->experiments[member]);
      ++num_rows;
    }
    if (num_rows > long_table) out += header();
    return out;
  }

 private:
  /// The first of a chain's sizes without a row gets a line for all of them.
  void leave_out(const SizeChain& chain) {
    if (chain.hopeless.empty()) return;
    for (const std::size_t member : chain.hopeless) left_out_[member];
    const std::size_t last = chain.members[chain.members.size() - chain.hopeless.size() - 1];
    const std::string text = fmt::format(
        "… {} than {} {} not fit either", format_count(chain.hopeless.size(), "larger size"),
        plan_->experiments[last].experiment.name, chain.hopeless.size() == 1 ? "does" : "do");
    std::string& lines = left_out_[*std::ranges::min_element(chain.hopeless)];
    for (const std::string& line : plan_words::wrapped(text, style_->width)) lines += line + "\n";
  }

  /// Up to the name.
  [[nodiscard]] std::string line_of(const TableRow& cells) const {
    std::string line;
    for (std::size_t index = 0; index < columns_.size(); ++index)
      if (const PlanColumn& column = columns_[index]; column.width > 0)
        line += aligned(cells[index], column.width, column.is_number) + std::string(gap);
    return line;
  }

  [[nodiscard]] std::string header() const {
    TableRow headers;
    for (const PlanColumn& column : columns_) headers.push_back(column.header);
    const std::string line = line_of(headers);
    if (style_->width > 0 || !has_remarks_) return line + "name\n";
    return line + aligned("name", name_width_, false) + std::string(gap) + "reason\n";
  }

  [[nodiscard]] std::string picture(const PlannedExperiment& planned) const {
    if (!style_->verbose || planned.status != PlanStatus::planned || !plan_->timeline) return "";
    const auto timeline = plan_->timeline(planned.experiment);
    return timeline ? memory_text(*timeline, style_->width, picture_indent) : "";
  }

  /// A member's line, and its remarks: beside the name where that fits, else below it.
  [[nodiscard]] std::string lines_of(std::size_t member) const {
    const PlannedExperiment& planned = plan_->experiments[member];
    std::string line = line_of(rows_[member]);
    const auto remarks = remarks_on(planned, style_->verbose);
    if (remarks.empty()) return line + planned.experiment.name + "\n";
    line += planned.experiment.name;
    const std::size_t beside = name_at_ + name_width_ + gap.size();
    if (style_->width == 0) {
      line += std::string(beside - gap.size() - plan_words::num_characters(line), ' ');
      for (const std::string& remark : remarks) line += std::string(gap) + remark;
      return line + "\n";
    }
    if (remarks.size() == 1 && beside + remarks.front().size() <= style_->width)
      return line + std::string(beside - plan_words::num_characters(line), ' ') + remarks.front() +
             "\n";
    // A narrow terminal has more room further to the left.
    const bool is_narrow = style_->width < name_at_ + min_reason_width;
    const std::size_t at = is_narrow ? 4 : name_at_;
    const std::size_t room = std::max(style_->width, at + min_reason_width) - at;
    line += "\n";
    for (const std::string& remark : remarks)
      for (const std::string& part : plan_words::wrapped(remark, room))
        line += std::string(at, ' ') + part + "\n";
    return line;
  }

  const DryRun* plan_;
  const DryRunStyle* style_;
  std::vector<PlanColumn> columns_ = {{"#"},
                                      {"verdict", false},
                                      {"ranks"},
                                      {"memory", true, true},
                                      {"nvidia-smi", true, true},
                                      {"host, a node", true, true},
                                      {"built-in", true, true},
                                      {"samples/s", true, true}};
  std::unordered_map<std::size_t, std::string> left_out_;  ///< members without rows, and lines
  std::vector<TableRow> rows_;
  std::size_t name_at_ = 0;
  std::size_t name_width_ = 4;
  bool has_remarks_ = false;
};

}  // namespace

std::string table_text(const DryRun& plan, const PlanAnswer& answer, const DryRunStyle& style) {
  return Table(plan, answer, style).text();
}

}  // namespace dstune
