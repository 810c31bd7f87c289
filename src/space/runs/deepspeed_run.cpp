#include "dstune/space/deepspeed_run.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "dstune/base/file.hpp"
#include "dstune/core/settings.hpp"
#include "dstune/space/search_space.hpp"
#include "sections/products.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest = 1 << 24;
/// Steps that DeepSpeed may still be finding its feet in.
constexpr std::int64_t num_warmup_steps = 3;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// A folder with a run's files.
class RunFolder {
 public:
  RunFolder(const fs::path& folder, const JobSpec& job, json::Problems& problems)
      : folder_(folder), job_(job), problems_(problems), num_known_(problems.all().size()) {
    run_.path = folder.string();
    run_.name = folder.filename().string();
    run_.config.sequence_length = job.sequence_length;
    run_.config.recompute = job.recompute.front();
  }

  /// The run whose metrics.json or log this is; nothing after adding a problem.
  std::optional<DeepSpeedRun> read_own(const std::string& file) {
    if (!fs::exists(file)) {
      problems_.add({file, "", 0, "there is no such file"});
      return std::nullopt;
    }
    if (fs::is_directory(file)) {
      problems_.add({file, "", 0,
                     "it is a folder: name the metrics.json or the log of your run, with "
                     "ds_config.json or exp.json beside it"});
      return std::nullopt;
    }
    const auto experiment = document("exp.json");
    if (experiment) read_experiment(experiment->node());
    const bool is_log = !file.ends_with(".json");
    DeepSpeedLog log;
    if (is_log) log = parsed(file);
    if (!is_file(folder_ / "ds_config.json") && !experiment && !log.config_text.empty())
      read_config(log, file);
    else
      read_config(experiment);
    if (is_log) {
      read_times(log, file);
    } else if (const auto metrics = document(fs::path(file).filename().string())) {
      read_metrics(metrics->node());
    } else if (!is_broken()) {
      problems_.add({file, "", 0, "can not be read"});
    }
    return is_broken() ? std::nullopt : std::optional(std::move(run_));
  }

  /// Nothing where the folder has no result; why is in `skipped`.
  std::optional<DeepSpeedRun> read(std::string& skipped) {
    const auto metrics = document("metrics.json");
    const auto status = document("status.json");
    if (is_broken()) return std::nullopt;
    if (!metrics && !status) {
      skipped = "there is neither metrics.json nor status.json in " + run_.path;
      return std::nullopt;
    }
    const auto experiment = document("exp.json");
    if (experiment) read_experiment(experiment->node());
    read_config(experiment);
    if (metrics)
      read_metrics(metrics->node());
    else
      read_status(status->node());
    return is_broken() ? std::nullopt : std::optional(std::move(run_));
  }

 private:
  [[nodiscard]] bool is_broken() const { return problems_.all().size() > num_known_; }

  /// A file of the folder, nothing where it is missing or no JSON.
  std::optional<json::Document> document(const std::string& name) {
    const fs::path path = folder_ / name;
    if (!is_file(path)) return std::nullopt;
    try {
      return json::Document::read(path.string());
    } catch (const InputError& error) {
      for (const Problem& problem : error.problems()) problems_.add(problem);
      return std::nullopt;
    }
  }

  void read_experiment(const json::Node& root) {
    if (!root.expect_object(problems_)) return;
    const auto integer = [&](const char* key, std::int64_t low) -> std::optional<std::int64_t> {
      const auto node = root.find(key);
      return node && !node->is_null() ? node->integer(problems_, low, largest) : std::nullopt;
    };
    if (const auto name = root.find("name"))
      run_.name = name->string(problems_).value_or(run_.name);
    const auto gpus = integer("num_gpus", 1);
    const auto nodes = integer("num_nodes", 1);
    if (gpus && nodes) run_.shape = GroupShape{static_cast<int>(*gpus), static_cast<int>(*nodes)};
    if (const auto length = integer("sequence_length", 1)) run_.config.sequence_length = *length;
    if (const auto node = root.find("recompute")) {
      const auto word = node->string(problems_);
      for (const Recompute one : job_.recompute)
        if (word == to_text(one)) run_.recompute = run_.config.recompute = one;
      if (word && !run_.recompute)
        problems_.add(node->problem(
            fmt::format("\"{}\" is none of this job's: see dstune.activation_recompute", *word)));
    }
  }

  void read_config(const std::optional<json::Document>& experiment) {
    if (const auto file = document("ds_config.json"))
      read_config(file->node());
    else if (const auto inside = experiment ? experiment->node().find("ds_config") : std::nullopt)
      read_config(*inside);
    else
      problems_.add({run_.path, "", 0, "there is no ds_config.json, which says what was run"});
  }

  void read_config(const DeepSpeedLog& log, const std::string& file) {
    try {
      // At its place in the log, so that problems have its lines.
      const std::string lines_before(static_cast<std::size_t>(log.config_line - 1), '\n');
      const json::Document document = json::Document::parse(lines_before + log.config_text, file);
      if (log.group_size && !run_.shape)
        run_.shape = GroupShape{static_cast<int>(std::min(*log.group_size, largest)), 1};
      read_config(document.node());
      // The log does not say how the group lies on nodes.
      if (log.group_size) run_.shape.reset();
    } catch (const InputError& error) {
      for (const Problem& problem : error.problems()) problems_.add(problem);
    }
  }

  void read_config(const json::Node& node) {
    if (!node.expect_object(problems_)) return;
    json::Value value = node.value();
    value.erase("autotuning");
    value.erase("dstune");
    drop_without_effect(job_.knobs(), value);
    const TrainingConfig mine = run_.config;
    json::Problems found;
    // The table's pointers start at the config's own root.
    const Settings settings = dstune::read_config(
        job_.knobs(), json::Node(node.document(), value, ""), found, job_.auto_values);
    run_.config = training_config(settings);
    complete_config(job_, mine.recompute, run_.config);
    run_.config.sequence_length = mine.sequence_length;
    read_batch(settings, node, found);
    if (const auto tuning = node.find("autotuning"); tuning && tuning->is_object())
      if (const auto step = tuning->find("start_profile_step"))
        profiled_step_ = step->integer(found, 0, largest).value_or(0) + 1;
    for (Problem problem : found.all()) {
      problem.pointer = node.pointer() + problem.pointer;
      problem.line = node.document().line(problem.pointer);
      problems_.add(problem);
    }
  }

  void read_batch(const Settings& settings, const json::Node& node, json::Problems& found) {
    const auto total = settings.integer("/train_batch_size");
    const auto micro = settings.integer("/train_micro_batch_size_per_gpu");
    const auto steps = settings.integer("/gradient_accumulation_steps");
    if (!run_.shape && !(total && micro && steps)) {
      found.add({node.document().file(), "", node.line(),
                 "the group's size is not known: all three batch sizes are needed, or an exp.json "
                 "with num_gpus and num_nodes"});
      return;
    }
    run_.group_size = run_.shape ? run_.shape->size()
                                 : static_cast<int>(std::max<std::int64_t>(
                                       1, std::min(largest, *total / *micro / *steps)));
    std::string why;
    const auto triple = resolve_batch(total, micro, steps, run_.group_size, why);
    if (!triple) return found.add(node.problem(why));
    run_.config.micro_batch = triple->micro_batch;
    run_.config.accumulation_steps = triple->accumulation_steps;
    if (run_.shape) place_on(*run_.shape, run_.config);
  }

  void read_metrics(const json::Node& root) {
    if (!root.expect_object(problems_)) return;
    if (root.find("step_times_s"))
      return problems_.add(
          root.problem("dstune-mpi measured this, not DeepSpeed: give the folder that "
                       "a verification job filled"));
    const auto node = root.find("throughput");
    if (!node) problems_.add(root.problem("\"throughput\" is missing"));
    const double least = std::numeric_limits<double>::min();
    const auto throughput = node ? node->number(problems_, least) : std::nullopt;
    if (!throughput || is_broken()) return;
    const std::string path = (folder_ / "log.txt").string();
    const DeepSpeedLog log = is_file(path) ? parsed(path) : DeepSpeedLog();
    // Its lines have more than one step, and the whole of each.
    std::vector<double> times_s = speeds_s(log);
    if (times_s.empty()) times_s = {batch() / *throughput};
    set_result(std::move(times_s), log);
  }

  void set_result(std::vector<double> times_s, const DeepSpeedLog& log) {
    run_.measurement.status = Status::ok;
    run_.measurement.step_times_s = std::move(times_s);
    run_.measurement.peak_memory.total_bytes = log.peak_memory_bytes.value_or(0);
  }

  DeepSpeedLog parsed(const std::string& path) {
    try {
      return parse_deepspeed_log(read_file(path, max_input_bytes), path, problems_);
    } catch (const IoError& error) {
      problems_.add({path, "", 0, error.what()});
      return {};
    }
  }

  [[nodiscard]] double batch() const {
    return static_cast<double>(global_batch(run_.config, run_.group_size));
  }

  [[nodiscard]] std::int64_t last_warmup_step() const {
    return std::max(num_warmup_steps, profiled_step_);
  }

  /// Step times by the throughput timer.
  [[nodiscard]] std::vector<double> speeds_s(const DeepSpeedLog& log) const {
    std::vector<double> times_s;
    for (const DeepSpeedLog::Speed& speed : log.speeds)
      if (speed.step > last_warmup_step()) times_s.push_back(batch() / speed.samples_per_s);
    return times_s;
  }

  void read_times(const DeepSpeedLog& log, const std::string& file) {
    if (is_broken()) return;
    std::vector<double> times_s = speeds_s(log);
    for (auto i = static_cast<std::size_t>(last_warmup_step());
         log.speeds.empty() && i < log.breakdowns.size(); ++i)
      times_s.push_back(log.breakdowns[i].total_s());
    if (times_s.empty())
      return problems_.add(
          {file, "", 0,
           fmt::format("no optimizer step after the first {} has its time in it: train "
                       "with \"wall_clock_breakdown\": true",
                       last_warmup_step())});
    set_result(std::move(times_s), log);
  }

  void read_status(const json::Node& root) {
    if (!root.expect_object(problems_)) return;
    const auto node = root.find("status");
    if (!node) problems_.add(root.problem("\"status\" is missing"));
    const auto word = node ? node->string(problems_) : std::nullopt;
    if (!word) return;
    // A word that is no status ends a run as little as this one does.
    const Status status = from_text<Status>(*word).value_or(Status::raced_out);
    if (status == Status::ok)
      problems_.add(node->problem("it is said to be ok, and metrics.json is missing"));
    else if (status == Status::raced_out)
      problems_.add(node->problem(fmt::format(
          "\"{}\" is no end of a run: take out_of_memory, timed_out or failed", *word)));
    run_.measurement.status = status;
    run_.measurement.reason = fmt::format("{} in DeepSpeed: see {}",
                                          status == Status::out_of_memory ? "ran out of memory"
                                          : status == Status::timed_out   ? "hung"
                                                                          : "failed",
                                          (folder_ / "log.txt").string());
  }

  fs::path folder_;
  const JobSpec& job_;
  json::Problems& problems_;
  DeepSpeedRun run_;
  std::int64_t profiled_step_ = 0;  ///< number, from 1, of the step in which operations are counted
  const std::size_t num_known_;     ///< problems before this run's
};

}  // namespace

DeepSpeedRuns read_deepspeed_runs(const std::string& dir, const JobSpec& job) {
  std::vector<fs::path> folders;
  std::error_code cause;
  for (fs::directory_iterator at(dir, cause), end; !cause && at != end; at.increment(cause))
    if (std::error_code ignored; at->is_directory(ignored)) folders.push_back(at->path());
  if (cause) throw InputError({{dir, "", 0, "can not be listed: " + cause.message()}});
  std::sort(folders.begin(), folders.end());
  json::Problems problems;
  DeepSpeedRuns found;
  for (const fs::path& folder : folders) {
    std::string skipped;
    auto run = RunFolder(folder, job, problems).read(skipped);
    if (run) found.runs.push_back(std::move(*run));
    if (!skipped.empty()) found.skipped.push_back(std::move(skipped));
  }
  if (problems.empty() && found.runs.empty())
    problems.add({dir, "", 0,
                  "no folder in it has a result: give the folder that verify.sbatch or verify.pbs "
                  "filled"});
  problems.check();
  return found;
}

DeepSpeedRun read_deepspeed_run(const std::string& path, const JobSpec& job) {
  json::Problems problems;
  const fs::path folder = fs::absolute(path).parent_path();
  auto run = RunFolder(folder, job, problems).read_own(path);
  problems.check();
  require(run.has_value(), "a run without a problem was read");
  run->path = path;
  return *run;
}

std::optional<std::size_t> find_experiment(const DeepSpeedRun& run,
                                           const std::vector<const Experiment*>& experiments) {
  const TrainingConfig wanted = effective_config(run.config);
  std::optional<std::size_t> found;
  for (std::size_t index = 0; index < experiments.size(); ++index) {
    const Experiment& experiment = *experiments[index];
    const GroupShape& shape = experiment.shape;
    if (run.shape ? *run.shape != shape : run.group_size != shape.size()) continue;
    TrainingConfig config = effective_config(experiment.config);
    if (!run.recompute) {
      config.recompute = wanted.recompute;
      config.cpu_checkpointing = wanted.cpu_checkpointing;
      config.synchronize_checkpoint_boundary = wanted.synchronize_checkpoint_boundary;
    }
    if (config != wanted) continue;
    if (experiment.name == run.name) return index;
    if (!found) found = index;
  }
  return found;
}

}  // namespace dstune
