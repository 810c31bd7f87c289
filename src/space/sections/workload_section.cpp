#include <filesystem>

#include "dstune/base/error.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/plugin_library.hpp"
#include "sections/section.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

void check_row(const json::Node& row, json::Problems& problems) {
  if (!row.expect_object(problems)) return;
  row.refuse_unknown_keys(problems, {"step_time_s", "step_times_s", "peak_memory_bytes", "status"});
  const auto one = row.find("step_time_s");
  const auto series = row.find("step_times_s");
  if (one) one->number(problems, 0.0);
  if (series && !series->is_array()) {
    problems.add(series->problem("expected a list of step times in seconds"));
  } else if (series) {
    for (const auto& time : series->elements()) time.number(problems, 0.0);
    if (series->elements().empty()) {
      problems.add(series->problem("an empty series can not be replayed: give one time at least"));
    }
  }
  if (const auto bytes = given(row, "peak_memory_bytes")) bytes->integer(problems, 0);
  bool is_ok = true;
  const auto status_node = given(row, "status");
  const auto status = status_node ? status_node->string(problems) : std::nullopt;
  if (status) {
    const auto known = from_text<Status>(*status);
    is_ok = known == Status::ok;
    if (!known) {
      problems.add(status_node->problem(
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

}  // namespace

void read_replay_table(const std::string& path, WorkloadSpec& workload, json::Problems& problems) {
  workload.table_path = path;
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

void set_plugin_library(const json::Node& node, const std::string& path, WorkloadSpec& workload,
                        json::Problems& problems) {
  // With a slash in it, so that the loader searches nowhere else.
  workload.library_path = std::filesystem::absolute(path).lexically_normal();
  try {
    check_plugin_library(workload.library_path);
  } catch (const Error& error) {
    problems.add(node.problem(error.what()));
  }
}

}  // namespace dstune
