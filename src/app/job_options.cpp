#include "job_options.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "option_table.hpp"

namespace dstune {
namespace {

Overrides overrides_of(const OptionValues& given) {
  Overrides overrides;
  overrides.model = given.text("model");
  std::vector<std::pair<std::string, std::optional<std::string>>> tuners;
  for (const std::string& type : find_option("tuner")->words) tuners.emplace_back(type, type);
  given.choose("tuner", overrides.tuner_type, tuners);
  given.choose("metric", overrides.metric,
               {{"throughput", Metric::throughput},
                {"throughput_per_gpu", Metric::throughput_per_gpu},
                {"latency", Metric::latency},
                {"flops", Metric::flops}});
  given.choose("precision", overrides.precision,
               {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}});
  overrides.deepspeed_version = given.version("deepspeed-version");
  overrides.num_trials = given.whole_number<int>("num-trials", 1);
  overrides.early_stopping = given.whole_number<int>("early-stopping", 0);
  overrides.seed = given.whole_number<std::int64_t>("seed", 0);
  overrides.results_dir = given.folder("results-dir");
  overrides.exps_dir = given.folder("exps-dir");
  overrides.overwrite = given.has("overwrite");
  overrides.retry_failed = given.has("retry-failed");
  overrides.full = given.has("full");
  overrides.verify = given.has("verify");
  if (const auto script = given.text("verify"); script && *script != own_script)
    overrides.verify_script = *script;
  overrides.experiment_files = given.all("experiments");
  overrides.machine = {.device = given.text("device"),
                       .network = given.text("network"),
                       .profile = given.text("profile"),
                       .gpus_per_node = given.whole_number<int>("gpus-per-node", 1, 1024),
                       .num_nodes = given.whole_number<int>("nodes", 1, 1 << 20),
                       .host_memory_bytes = given.bytes("host-memory")};
  return overrides;
}

std::optional<HostFilter> host_filter_of(const OptionValues& given) {
  std::optional<HostFilter> filter;
  for (const char* name : {"include", "exclude"}) {
    const std::optional<std::string> text = given.text(name);
    // An empty text says nothing: it is DeepSpeed's default.
    if (!text || text->empty()) continue;
    if (filter) throw UsageError("--include and --exclude do not go together: leave one out");
    filter = parse_host_filter(*text, name == std::string_view("exclude"));
  }
  return filter;
}

}  // namespace

void fill(const OptionValues& given, CommandLine& line) {
  JobOptions& job = line.job;
  job.overrides = overrides_of(given);
  job.hostfile = given.text("hostfile");
  job.host_filter = host_filter_of(given);
  given.choose("backend", job.backend,
               {{"auto", Backend::automatic}, {"cpu", Backend::cpu}, {"cuda", Backend::cuda}});
  given.choose("format", job.json_output, {{"text", false}, {"json", true}});
  job.import_dir = given.text("import");
  job.calibration_files = given.all("calibrate");
  job.time_limit_s = given.duration_s("time-limit");
  job.reserve_s = given.duration_s("reserve");
  job.trial_timeout_s = given.duration_s("trial-timeout");
  if (job.trial_timeout_s == 0) given.refuse("trial-timeout", "no experiment ends in no time");
  job.profile_path = given.text("profile-out");
  given.choose("coordinator", job.dedicated_coordinator, {{"shared", false}, {"dedicated", true}});
  given.choose("color", line.color, {{"auto", std::nullopt}, {"always", true}, {"never", false}});
  job.dry_run = job.dry_run || given.has("dry-run");
  job.shows_all = given.has("all");
  job.quiet = given.has("quiet");
  job.verbose = given.has("verbose");
  given.choose("progress", job.progress,
               {{"auto", ProgressMode::automatic},
                {"live", ProgressMode::live},
                {"lines", ProgressMode::lines},
                {"none", ProgressMode::none}});
  if (given.has("no-progress")) {
    if (given.has("progress") && job.progress != ProgressMode::none)
      throw UsageError("--no-progress and --progress contradict each other: leave one out");
    job.progress = ProgressMode::none;
  }
  if (job.quiet) line.level = log::Level::warning;
  if (job.verbose) line.level = log::Level::debug;
  if (job.overrides.machine.device && job.backend == Backend::cpu)
    throw UsageError("--device names a GPU, and --backend cpu asks for none: leave one out");
  if (job.quiet && job.verbose) {
    throw UsageError("--quiet and --verbose contradict each other: leave one out");
  }
}

}  // namespace dstune
