#include "dstune/report/dry_run.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/text.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// A table so long that its header is off the screen at its end.
constexpr std::size_t long_table = 40;
/// Less is no room for a sentence.
constexpr std::size_t min_reason_width = 30;
constexpr std::string_view gap = "  ";
constexpr std::size_t picture_indent = 4;

/// The prediction of a member. The keys of a pruned one are there, too, all null.
json::Value predicted_json(const PlannedExperiment& planned) {
  const bool is_predicted = planned.status != PlanStatus::pruned;
  json::Value value = json::write(is_predicted ? planned.predicted : Prediction());
  const Prediction& predicted = planned.predicted;
  value["verdict"] = to_text(predicted.verdict);
  value["because"] = predicted.because;
  value["target_memory_shown_bytes"] = predicted.target_memory_shown_bytes;
  value["target_host_memory_bytes"] = predicted.target_host_memory_bytes;
  value["categories"] = predicted.categories;
  json::Value& ranks = value["ranks"] = json::Value::array();
  for (const RankMemory& alike : planned.predicted.ranks)
    ranks.push_back({{"ranks", {alike.first, alike.last}},
                     {"peak_memory_bytes", alike.peak_memory_bytes},
                     {"categories", alike.categories}});
  if (!is_predicted)
    for (json::Value& member : value) member = nullptr;
  return value;
}

/// A column before the name.
struct PlanColumn {
  std::string header;
  bool is_number = true;
  bool is_dropped_where_empty = false;
  std::size_t width = 0;  ///< 0: it is dropped
};

std::string aligned(const std::string& text, std::size_t width, bool to_the_right) {
  const std::string blanks(width - std::min(width, text.size()), ' ');
  return to_the_right ? blanks + text : text + blanks;
}

std::string group_text(const GroupShape& shape) {
  if (shape.num_nodes == 1) return std::to_string(shape.size());
  return fmt::format("{} ({}x{})", shape.size(), shape.num_nodes, shape.num_gpus);
}

/// The cells before the name; `number`: among those that are planned.
TableRow cells_of(const PlannedExperiment& planned, int number) {
  const Prediction& predicted = planned.predicted;
  const bool is_predicted = planned.status != PlanStatus::pruned;
  // A plug-in's memory is its own affair.
  const std::string memory =
      predicted.peak_memory_bytes > 0 ? format_bytes(predicted.peak_memory_bytes) : "not predicted";
  const bool shows_target = is_predicted && predicted.target_memory_bytes > 0;
  const auto if_predicted = [&](const std::optional<double>& throughput) {
    return is_predicted && throughput ? format_number(*throughput) : "";
  };
  return {planned.status == PlanStatus::planned ? std::to_string(number) : "",
          std::string(to_text(planned.status)),
          group_text(planned.experiment.shape),
          is_predicted ? memory : "",
          shows_target ? format_bytes(predicted.target_memory_bytes) : "",
          if_predicted(predicted.throughput),
          if_predicted(predicted.target_throughput)};
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
  if (!planned.reason.empty()) remarks.push_back(planned.reason);
  // The reason of what does not fit lists the parts in brackets.
  if (planned.status == PlanStatus::infeasible && !verbose) {
    std::string& reason = remarks.back();
    for (std::size_t from = reason.find(" ("); from != reason.npos; from = reason.find(" (")) {
      const std::size_t to = std::min(reason.find(')', from), reason.size() - 1);
      reason.erase(from, to - from + 1);
    }
  }
  if (!verbose) return remarks;
  for (const RankMemory& alike : planned.predicted.ranks) {
    const std::string who = planned.predicted.ranks.size() == 1
                                ? std::string(alike.last == 0 ? "the rank" : "every rank")
                                : fmt::format("ranks {} to {}", alike.first, alike.last);
    remarks.push_back(fmt::format("{}: {}", who, categories_text(alike.categories)));
  }
  return remarks;
}

/// The text in lines of at most `width` characters, cut at blanks; 0: one line.
std::vector<std::string> wrapped(std::string text, std::size_t width) {
  std::vector<std::string> lines;
  while (width > 0 && text.size() > width) {
    std::size_t cut = text.rfind(' ', width);
    if (cut == 0 || cut == text.npos) cut = std::min(text.find(' ', width), text.size());
    lines.push_back(text.substr(0, cut));
    text.erase(0, std::min(cut + 1, text.size()));
  }
  if (!text.empty()) lines.push_back(std::move(text));
  return lines;
}

class Table {
 public:
  Table(const DryRun& plan, const DryRunStyle& style) : plan_(&plan), style_(&style) {
    int number = 1;
    for (const PlannedExperiment& planned : plan.experiments) {
      rows_.push_back(cells_of(planned, number));
      if (planned.status == PlanStatus::planned) ++number;
      name_width_ = std::max(name_width_, planned.experiment.name.size());
      has_remarks_ = has_remarks_ || style.verbose || !planned.reason.empty();
    }
    for (std::size_t index = 0; index < columns_.size(); ++index) {
      PlanColumn& column = columns_[index];
      for (const TableRow& row : rows_) column.width = std::max(column.width, row[index].size());
      if (column.is_dropped_where_empty && column.width == 0) continue;
      column.width = std::max(column.width, column.header.size());
      name_at_ += column.width + gap.size();
    }
  }

  [[nodiscard]] std::string text() const {
    std::string out = header();
    for (std::size_t member = 0; member < plan_->experiments.size(); ++member)
      out += lines_of(member) + picture(plan_->experiments[member]);
    if (plan_->experiments.size() > long_table) out += header();
    return out;
  }

 private:
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
      line += std::string(beside - gap.size() - line.size(), ' ');
      for (const std::string& remark : remarks) line += std::string(gap) + remark;
      return line + "\n";
    }
    if (remarks.size() == 1 && beside + remarks.front().size() <= style_->width)
      return line + std::string(beside - line.size(), ' ') + remarks.front() + "\n";
    // A narrow terminal has more room further to the left.
    const bool is_narrow = style_->width < name_at_ + min_reason_width;
    const std::size_t at = is_narrow ? 4 : name_at_;
    const std::size_t room = std::max(style_->width, at + min_reason_width) - at;
    line += "\n";
    for (const std::string& remark : remarks)
      for (const std::string& part : wrapped(remark, room))
        line += std::string(at, ' ') + part + "\n";
    return line;
  }

  const DryRun* plan_;
  const DryRunStyle* style_;
  std::vector<PlanColumn> columns_ = {{"#"},
                                      {"status", false},
                                      {"ranks"},
                                      {"memory"},
                                      {"target", true, true},
                                      {"samples/s", true, true},
                                      {"in your training", true, true}};
  std::vector<TableRow> rows_;
  std::size_t name_at_ = 0;
  std::size_t name_width_ = 4;
  bool has_remarks_ = false;
};

}  // namespace

std::string dry_run_text(const DryRun& plan, const DryRunStyle& style) {
  std::string out;
  std::vector<std::string> sentences;
  if (!plan.deepspeed.empty()) sentences.push_back(plan.deepspeed + ".");
  for (const std::string& line : plan.from_command) sentences.push_back(line + ".");
  for (const std::string& assumption : plan.assumptions)
    sentences.push_back("Assumed: " + assumption + ".");
  for (const std::string& sentence : sentences)
    for (const std::string& line : wrapped(sentence, style.width)) out += line + "\n";
  if (!sentences.empty()) out += "\n";
  out += Table(plan, style).text();
  std::string close =
      fmt::format("{}: {} planned, {} infeasible, {} pruned.", format_count(plan.total, "member"),
                  plan.planned, plan.infeasible, plan.pruned);
  if (plan.device_memory_bytes > 0)
    close += fmt::format(" A rank may use {}.", format_bytes(plan.device_memory_bytes));
  if (plan.expected_s)
    close += fmt::format(" Expected duration: {}.", format_duration(*plan.expected_s));
  if (plan.total > plan.experiments.size())
    close += fmt::format(
        " Only the first {} members are listed and predicted; the counts are over all of them.",
        plan.experiments.size());
  out += "\n";
  for (const std::string& line : wrapped(close, style.width)) out += line + "\n";
  return out;
}

json::Value dry_run_json(const DryRun& plan) {
  json::Value experiments = json::Value::array();
  for (const PlannedExperiment& planned : plan.experiments) {
    experiments.push_back({{"name", planned.experiment.name},
                           {"num_gpus", planned.experiment.shape.size()},
                           {"status", to_text(planned.status)},
                           {"reason", planned.reason},
                           {"predicted", predicted_json(planned)},
                           {"ds_config", planned.experiment.ds_config}});
  }
  return {{"experiments", std::move(experiments)},
          {"counts",
           {{"planned", plan.planned}, {"infeasible", plan.infeasible}, {"pruned", plan.pruned}}},
          {"expected_duration_s", finite_or_null(plan.expected_s)},
          {"deepspeed_version", plan.deepspeed_version},
          {"from_command", plan.from_command},
          {"assumptions", plan.assumptions}};
}

}  // namespace dstune
