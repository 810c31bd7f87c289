#include "options.hpp"

#include <limits>
#include <sstream>
#include <vector>

#include <boost/program_options.hpp>

#include "dstune/base/error.hpp"
#include "dstune/base/units.hpp"

namespace dstune {
namespace {

namespace po = boost::program_options;
using Strings = std::vector<std::string>;

constexpr unsigned line_width = 100;
constexpr std::int64_t largest_int = std::numeric_limits<int>::max();

po::options_description visible_options() {
  po::options_description all("Options", line_width, line_width / 2);
  auto add = all.add_options();
  add("model", po::value<std::string>()->value_name("FILE|NAME"),
      "Hugging Face config.json, or a preset (gpt2, gpt2-medium, llama-7b, ...); overrides "
      "dstune.model");
  add("backend", po::value<std::string>()->value_name("auto|cpu|cuda|sim"),
      "what experiments run on (default auto; this release has cpu)");
  add("hostfile", po::value<std::string>()->value_name("FILE"),
      "MPI or DeepSpeed hostfile: train on these hosts and slots only; with --dry-run it is the "
      "cluster");
  add("include", po::value<std::string>()->value_name("SPEC"),
      "train on these hosts and slots only: HOST:SLOT,SLOT@HOST");
  add("exclude", po::value<std::string>()->value_name("SPEC"),
      "train on all hosts and slots but these: HOST:SLOT,SLOT@HOST");
  add("tuner", po::value<std::string>()->value_name("NAME"),
      "gridsearch, random, model_based or race; overrides autotuning.tuner_type (default race)");
  add("metric", po::value<std::string>()->value_name("NAME"),
      "throughput, throughput_per_gpu, latency or flops; overrides autotuning.metric");
  add("num-trials", po::value<std::string>()->value_name("N"), "run at most N experiments");
  add("early-stopping", po::value<std::string>()->value_name("N"),
      "stop after N experiments past the best (0: off)");
  add("seed", po::value<std::string>()->value_name("N"), "seed of the tuner (default 0)");
  add("full", "as autotuning.fast = false");
  add("results-dir", po::value<std::string>()->value_name("DIR"),
      "where results go (default autotuning_results)");
  add("exps-dir", po::value<std::string>()->value_name("DIR"),
      "where experiment files go (default autotuning_exps)");
  add("overwrite",
      "once the input has passed, delete what dstune-mpi wrote there before (default: resume)");
  add("experiments", po::value<Strings>()->value_name("FILE"),
      "run exactly this experiment file {name, ds_config, num_gpus, num_nodes}; may repeat");
  add("calibrate", po::value<Strings>()->value_name("FILE"),
      "what your own DeepSpeed run wrote (metrics.json, or its log): times are fitted to it; may "
      "repeat");
  add("import", po::value<std::string>()->value_name("DIR"),
      "what the verification jobs left (<results-dir>/verify): the answer is verified with it");
  add("dry-run", "print the plan and write no file; groups may be larger than the job");
  add("format", po::value<std::string>()->value_name("text|json"),
      "of --dry-run and of the closing summary (default text)");
  add("time-limit", po::value<std::string>()->value_name("DURATION"),
      "how long it may run (90s, 10m, 1:30:00; default: what the batch system's environment says)");
  add("reserve", po::value<std::string>()->value_name("DURATION"),
      "of the time limit, for a clean end (default 60s, at most a tenth)");
  add("trial-timeout", po::value<std::string>()->value_name("DURATION"),
      "give an experiment up after so long (default: many times its prediction)");
  add("profile-out", po::value<std::string>()->value_name("FILE"),
      "write what the machine was measured to take (docs/files.md)");
  add("coordinator", po::value<std::string>()->value_name("shared|dedicated"),
      "does rank 0 train too (default shared)");
  add("quiet", "warnings and errors only");
  add("verbose", "more messages; with --dry-run the memory of each category");
  add("no-progress", "no progress lines");
  add("color", po::value<std::string>()->value_name("auto|always|never"),
      "colour of messages (default auto)");
  add("version", "versions of dstune-mpi and its libraries");
  add("help", "this text");
  return all;
}

template <class T>
T one_of(const std::string& option, const std::string& word,
         const std::vector<std::pair<std::string, T>>& choices) {
  std::string known;
  for (const auto& [name, value] : choices) {
    if (name == word) return value;
    known += (known.empty() ? "" : ", ") + name;
  }
  throw UsageError("--" + option + " " + word + ": use one of " + known);
}

std::int64_t whole_number(const std::string& option, const std::string& text, std::int64_t low,
                          std::int64_t high) {
  std::size_t used = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < low || value > high) {
    throw UsageError("--" + option + " " + text + ": expected a whole number from " +
                     std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

double duration_s(const std::string& option, const std::string& text) {
  const std::optional<double> value = parse_duration_s(text);
  if (!value) {
    throw UsageError("--" + option + " " + text +
                     ": expected a duration such as 90s, 10m, 1.5h or 1:30:00");
  }
  return *value;
}

/// The options that were given, typed access by name.
class ParsedOptions {
 public:
  explicit ParsedOptions(const po::variables_map& map) : map_(map) {}
  [[nodiscard]] bool has(const char* name) const { return map_.count(name) > 0; }
  template <class Use>
  void use(const char* name, Use&& with) const {
    if (has(name)) with(map_[name].as<std::string>());
  }

 private:
  const po::variables_map& map_;
};

void fill_overrides(const ParsedOptions& given, Overrides& overrides) {
  given.use("model", [&](const std::string& text) { overrides.model = text; });
  given.use("tuner", [&](const std::string& text) {
    overrides.tuner_type = one_of<std::string>("tuner", text,
                                               {{"gridsearch", "gridsearch"},
                                                {"random", "random"},
                                                {"model_based", "model_based"},
                                                {"race", "race"}});
  });
  given.use("metric", [&](const std::string& text) {
    overrides.metric = one_of<Metric>("metric", text,
                                      {{"throughput", Metric::throughput},
                                       {"throughput_per_gpu", Metric::throughput_per_gpu},
                                       {"latency", Metric::latency},
                                       {"flops", Metric::flops}});
  });
  given.use("num-trials", [&](const std::string& text) {
    overrides.num_trials = static_cast<int>(whole_number("num-trials", text, 1, largest_int));
  });
  given.use("early-stopping", [&](const std::string& text) {
    overrides.early_stopping =
        static_cast<int>(whole_number("early-stopping", text, 0, largest_int));
  });
  given.use("seed", [&](const std::string& text) {
    overrides.seed = whole_number("seed", text, 0, std::numeric_limits<std::int64_t>::max());
  });
  given.use("results-dir", [&](const std::string& text) { overrides.results_dir = text; });
  given.use("exps-dir", [&](const std::string& text) { overrides.exps_dir = text; });
  overrides.overwrite = given.has("overwrite");
  overrides.full = given.has("full");
}

void fill_hosts(const ParsedOptions& given, JobOptions& job) {
  given.use("hostfile", [&](const std::string& text) { job.hostfile = text; });
  for (const char* name : {"include", "exclude"}) {
    given.use(name, [&](const std::string& text) {
      // As in DeepSpeed, whose default it is, nothing says nothing.
      if (text.empty()) return;
      if (job.host_filter) {
        throw UsageError("--include and --exclude do not go together: leave one out");
      }
      job.host_filter = parse_host_filter(text, name == std::string_view("exclude"));
    });
  }
}

void fill(const ParsedOptions& given, CommandLine& line) {
  fill_overrides(given, line.job.overrides);
  fill_hosts(given, line.job);
  given.use("backend", [&](const std::string& text) {
    line.job.backend = one_of<Backend>("backend", text,
                                       {{"auto", Backend::automatic},
                                        {"cpu", Backend::cpu},
                                        {"cuda", Backend::cuda},
                                        {"sim", Backend::sim}});
  });
  given.use("format", [&](const std::string& text) {
    line.job.json_output = one_of<bool>("format", text, {{"text", false}, {"json", true}});
  });
  given.use("import", [&](const std::string& text) { line.job.import_dir = text; });
  given.use("time-limit", [&](const std::string& text) {
    line.job.time_limit_s = duration_s("time-limit", text);
  });
  given.use("reserve",
            [&](const std::string& text) { line.job.reserve_s = duration_s("reserve", text); });
  given.use("trial-timeout", [&](const std::string& text) {
    line.job.trial_timeout_s = duration_s("trial-timeout", text);
  });
  given.use("profile-out", [&](const std::string& text) { line.job.profile_path = text; });
  given.use("coordinator", [&](const std::string& text) {
    line.job.dedicated_coordinator =
        one_of<bool>("coordinator", text, {{"shared", false}, {"dedicated", true}});
  });
  given.use("color", [&](const std::string& text) {
    line.color = one_of<std::optional<bool>>(
        "color", text, {{"auto", std::nullopt}, {"always", true}, {"never", false}});
  });
  line.job.dry_run = given.has("dry-run");
  line.job.quiet = given.has("quiet");
  line.job.verbose = given.has("verbose");
  line.job.no_progress = given.has("no-progress");
  if (given.has("quiet")) line.level = log::Level::warning;
  if (given.has("verbose")) line.level = log::Level::debug;
  if (line.job.dry_run && line.job.profile_path) {
    throw UsageError("--dry-run writes no file: leave --profile-out out, or run the space");
  }
  if (given.has("quiet") && given.has("verbose")) {
    throw UsageError("--quiet and --verbose contradict each other: leave one out");
  }
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  for (int i = 0; i < argc; ++i) {
    line.job.command_line += (i > 0 ? " " : "") + std::string(argv[i]);
  }
  po::options_description all;
  all.add(visible_options());
  all.add_options()("space", po::value<Strings>());
  po::positional_options_description positional;
  positional.add("space", -1);
  po::variables_map map;
  try {
    // No guessing: an abbreviation that works today would be ambiguous tomorrow.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing &
                      ~po::command_line_style::allow_short;
    po::store(
        po::command_line_parser(argc, argv).options(all).positional(positional).style(style).run(),
        map);
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; --help lists the options");
  }
  line.help = map.count("help") > 0;
  line.version = map.count("version") > 0;
  if (line.help || line.version) return line;

  fill(ParsedOptions(map), line);
  if (map.count("experiments") > 0) {
    line.job.overrides.experiment_files = map["experiments"].as<Strings>();
  }
  if (map.count("calibrate") > 0) {
    line.job.calibration_files = map["calibrate"].as<Strings>();
  }
  if (map.count("space") == 0) {
    throw UsageError("no space.json is given: mpirun -np N dstune-mpi [options] space.json");
  }
  const auto& spaces = map["space"].as<Strings>();
  if (spaces.size() > 1) {
    throw UsageError("more than one space.json: " + spaces[0] + " and " + spaces[1]);
  }
  line.job.space_path = spaces.front();
  return line;
}

std::string help_text() {
  std::ostringstream text;
  text
      << "Finds the fastest DeepSpeed (ZeRO) configuration for a model on this machine, inside one "
         "MPI job.\n\n"
         "  mpirun -np N dstune-mpi [options] space.json\n\n"
         "space.json is a DeepSpeed config in which any value may be a list of candidates; "
         "docs/space.md\ndescribes it. Progress goes to stderr, results to stdout and "
         "<results-dir>.\n\n"
      << visible_options()
      << "\nExit codes: 0 done, 1 internal error, 2 bad command line, 3 bad input, 4 nothing "
         "feasible,\n6 no usable device, 7 results can not be written, 75 stopped early (the same "
         "command resumes).\n";
  return text.str();
}

}  // namespace dstune
