#include <filesystem>

#include "dstune/base/error.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/plugin_library.hpp"
#include "section.hpp"
#include "sections.hpp"

namespace dstune {

namespace {

/// A time that a row gives, at least 0.
void check_seconds(const json::Node& node, json::Problems& problems) {
  node.number(problems, 0.0);
}

void check_row(const json::Node& row, json::Problems& problems) {
  if (!row.expect_object(problems)) return;
  row.refuse_unknown_keys(problems, {"step_time_s", "step_times_s", "peak_memory_bytes", "status"});
  const auto one = row.find("step_time_s");
  const auto series = row.find("step_times_s");
  if (one) check_seconds(*one, problems);
  if (series && !series->is_array()) {
    problems.add(series->problem("expected a list of step times in seconds"));
  } else if (series) {
    for (const auto& time : series->elements()) check_seconds(time, problems);
    if (series->elements().empty()) {
      problems.add(series->problem("an empty series can not be replayed: give one time at least"));
    }
  }
  std::int64_t bytes = 0;
  read_integer(row, "peak_memory_bytes", bytes, problems, 0);
  bool is_ok = true;
  if (const auto status = read_text(row, "status", problems)) {
    const auto known = parse_status(*status);
    is_ok = known == Status::ok;
    if (!known) {
      problems.add(row.find("status")->problem(
          "\"" + *status +
          "\" is no status: take ok, raced_out, out_of_memory, timed_out or failed"));
    }
  }
  if (one && series) {
    problems.add(row.problem("step_time_s and step_times_s exclude each other: keep one"));
  } else if (is_ok && !one && !series) {
    problems.add(row.problem("a row with status ok needs step_time_s or step_times_s"));
  }
}

void read_table(const json::Node& node, const std::string& folder, WorkloadSpec& workload,
                json::Problems& problems) {
  const auto path = read_text(node, "table", problems);
  if (!path) {
    if (!given(node, "table")) {
      problems.add(node.problem("a replay needs \"table\": the file with the recorded steps"));
    }
    return;
  }
  workload.table_path = path_from(folder, *path);
  try {
    const auto document = json::Document::read(workload.table_path);
    const auto table = document.node();
    if (!table.expect_object(problems)) return;
    for (const auto& name : table.keys()) check_row(*table.find(name), problems);
    workload.table = document.root();
  } catch (const InputError& error) {
    for (const auto& problem : error.problems()) problems.add(problem);
  }
}

/// The library's file is looked at, and nothing of it runs.
void read_plugin(const json::Node& node, const std::string& folder, WorkloadSpec& workload,
                 json::Problems& problems) {
  const auto path = read_text(node, "library", problems);
  if (!path) {
    if (!given(node, "library")) {
      problems.add(
          node.problem("a plugin needs \"library\": the file that dstune/workload.h asks for"));
    }
    return;
  }
  workload.options = node.value();
  // With a slash in it, so that the loader searches nowhere else.
  workload.library_path = std::filesystem::absolute(path_from(folder, *path)).lexically_normal();
  try {
    check_plugin_library(workload.library_path);
  } catch (const Error& error) {
    problems.add(node.find("library")->problem(error.what()));
  }
}

void read_factor(const json::Node& node, const std::string& key, double& field,
                 json::Problems& problems) {
  if (const auto found = given(node, key)) {
    if (const auto value = found->number(problems, 0.0)) field = *value;
  }
}

}  // namespace

WorkloadSpec read_workload(const json::Node& node, const std::string& folder,
                           json::Problems& problems) {
  WorkloadSpec workload;
  std::optional<std::string> type;
  if (node.is_object()) {
    type = read_text(node, "type", problems);
    if (!type && !given(node, "type")) {
      problems.add(
          node.problem("a workload needs \"type\": transformer, synthetic, replay or plugin"));
    }
  } else {
    type = node.string(problems);
  }
  if (!type) return workload;
  if (*type == "transformer") {
    if (node.is_object()) node.refuse_unknown_keys(problems, {"type"});
  } else if (*type == "synthetic") {
    workload.kind = WorkloadKind::synthetic;
    if (node.is_object()) node.refuse_unknown_keys(problems, {"type", "step_time_s"});
    read_factor(node, "step_time_s", workload.step_time_s, problems);
  } else if (*type == "replay") {
    workload.kind = WorkloadKind::replay;
    if (node.is_object()) node.refuse_unknown_keys(problems, {"type", "table", "time_scale"});
    read_factor(node, "time_scale", workload.time_scale, problems);
    read_table(node, folder, workload, problems);
  } else if (*type == "plugin") {
    workload.kind = WorkloadKind::plugin;
    if (node.is_object()) {
      read_plugin(node, folder, workload, problems);
    } else {
      problems.add(
          node.problem("a plugin needs its library: {\"type\": \"plugin\", \"library\": ...}"));
    }
  } else {
    problems.add(node.problem("\"" + *type +
                              "\" is no workload: take transformer, synthetic, replay or plugin"));
  }
  return workload;
}

}  // namespace dstune
