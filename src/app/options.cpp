#include "options.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <sstream>
#include <vector>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/devices.hpp"
#include "dstune/core/keys.hpp"
#include "option_values.hpp"

namespace dstune {
namespace {

namespace po = boost::program_options;
using Strings = std::vector<std::string>;

constexpr unsigned line_width = 100;
/// The value of --verify without a script: the library would take the next word for one.
constexpr const char* own_script = "-";

/// The words of the tuners' key.
std::vector<std::string_view> tuner_types() {
  return choices_of("autotuning", "/autotuning/tuner_type");
}

po::options_description visible_options() {
  po::options_description all("Options", line_width, line_width / 2);
  auto add = all.add_options();
  const auto value = [&](const char* name, const char* form, const char* help) {
    add(name, po::value<std::string>()->value_name(form), help);
  };
  const auto values = [&](const char* name, const char* form, const char* help) {
    add(name, po::value<Strings>()->value_name(form), help);
  };
  value("model", "FILE|NAME",
        "Hugging Face config.json or its folder, or a preset (gpt2, gpt2-medium, llama-7b, ...); "
        "overrides dstune.model");
  value("backend", "auto|cpu|cuda",
        "what experiments run on (default auto: cuda where every rank has a GPU that answers, else "
        "cpu)");
  value("hostfile", "FILE",
        "MPI or DeepSpeed hostfile: train on these hosts and slots only; with --dry-run it is the "
        "cluster");
  value("include", "SPEC", "train on these hosts and slots only: HOST:SLOT,SLOT@HOST");
  value("exclude", "SPEC", "train on all hosts and slots but these: HOST:SLOT,SLOT@HOST");
  std::vector<std::string_view> tuners = tuner_types();
  const std::string_view last = tuners.back();
  tuners.pop_back();
  value("tuner", "NAME",
        fmt::format("{} or {}; overrides autotuning.tuner_type (default {})",
                    fmt::join(tuners, ", "), last, default_tuner_type)
            .c_str());
  value("metric", "NAME",
        "throughput, throughput_per_gpu, latency or flops; overrides autotuning.metric");
  value("num-trials", "N", "run at most N experiments");
  value("early-stopping", "N", "stop after N experiments past the best (0: off)");
  value("seed", "N", "seed of the tuner (default 0)");
  value("precision", "fp32|bf16|fp16",
        "where the config says \"auto\"; overrides dstune.precision (default: the model's "
        "torch_dtype)");
  value("deepspeed-version", "V",
        "the DeepSpeed that will train; overrides dstune.deepspeed_version (default: the one that "
        "is installed)");
  add("full", "as autotuning.fast = false");
  value("results-dir", "DIR", "where results go (default autotuning_results)");
  value("exps-dir", "DIR", "where experiment files go (default autotuning_exps)");
  add("overwrite",
      "once the input has passed, delete what dstune-mpi wrote there before (default: resume)");
  add("retry-failed", "run again what failed or timed out before (default: its result counts)");
  values("experiments", "FILE",
         "run exactly this experiment file {name, ds_config, num_gpus, num_nodes}; may repeat");
  values(
      "calibrate", "FILE",
      "what your own DeepSpeed run wrote (metrics.json, or its log): times are fitted to it; may "
      "repeat");
  value("import", "DIR",
        "what the verification jobs left (<results-dir>/verify): the answer is verified with it");
  value("verify", "[=SCRIPT]",
        "your training (this script, else that of dstune.training_command) decides in the same "
        "job; overrides dstune.verify");
  value(
      "device", "NAME",
      fmt::format("plan for this GPU: {}; overrides dstune.device", fmt::join(device_names(), ", "))
          .c_str());
  value("profile", "FILE", "plan for the machine that --profile-out measured");
  value("gpus-per-node", "N", "of the cluster that is planned for");
  value("nodes", "N", "of the cluster that is planned for (default 1)");
  value("network", "NAME",
        fmt::format("between its nodes: {}", fmt::join(network_names(), ", ")).c_str());
  value("host-memory", "SIZE", "of a node of the cluster that is planned for, such as 1TiB");
  add("dry-run", "print the plan and write no file; groups may be larger than the job");
  add("all", "with --dry-run the table of all members, too, not the answer alone");
  value("format", "text|json", "of --dry-run and of the closing summary (default text)");
  value(
      "time-limit", "DURATION",
      "how long it may run (90s, 10m, 1:30:00; default: what the batch system's environment says)");
  value("reserve", "DURATION", "of the time limit, for a clean end (default 60s, at most a tenth)");
  value("trial-timeout", "DURATION",
        "give an experiment up after so long (default: many times its prediction)");
  value("profile-out", "FILE", "write what the machine was measured to take (docs/files.md)");
  value("coordinator", "shared|dedicated", "does rank 0 train too (default shared)");
  value("command", "LINE", "with check FILE: the training's command, compared with the config");
  add("strict", "with check FILE: warnings end with exit code 3, too");
  add("quiet", "warnings and errors only");
  add("verbose",
      "also what was understood, found and formed; with --dry-run the memory of each category");
  value("progress", "auto|live|lines|none",
        "how the job tells where it is: live rewrites a block of the terminal, lines adds a line "
        "for each event (default auto: live on a terminal, lines under mpirun and into files)");
  add("no-progress", "as --progress none");
  value("color", "auto|always|never", "colour of messages (default auto)");
  add("version", "versions of dstune-mpi and its libraries");
  add("help", "this text; -h, too");
  return all;
}

Overrides overrides_of(const OptionValues& given) {
  Overrides overrides;
  overrides.model = given.text("model");
  std::vector<std::pair<std::string, std::optional<std::string>>> tuners;
  for (const std::string_view type : tuner_types()) tuners.emplace_back(type, type);
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
  if (job.dry_run && job.profile_path) {
    throw UsageError("--dry-run writes no file: leave --profile-out out, or run the space");
  }
  if (job.overrides.machine.device && job.backend == Backend::cpu)
    throw UsageError("--device names a GPU, and --backend cpu asks for none: leave one out");
  if (!job.dry_run && !line.check && job.overrides.machine.is_made()) {
    throw UsageError(
        "--device, --profile, --gpus-per-node, --nodes, --network and --host-memory are for plans "
        "(dstune-mpi plan): a job trains where it runs");
  }
  if (job.quiet && job.verbose) {
    throw UsageError("--quiet and --verbose contradict each other: leave one out");
  }
}

enum class Verb { plan, check, status, help };
constexpr std::array<std::pair<std::string_view, Verb>, 4> verbs{
    {{"plan", Verb::plan}, {"check", Verb::check}, {"status", Verb::status}, {"help", Verb::help}}};

/// The command that the first word asks for; nothing: it is an option or a file. Throws UsageError
/// where it is an unknown command: no such file is there, and no file of a space has such a name.
std::optional<Verb> verb_of(const std::string& word) {
  std::vector<std::string_view> names;
  for (const auto& [name, verb] : verbs) {
    if (name == word) return verb;
    names.push_back(name);
  }
  std::error_code ignored;
  if (word.empty() || word.starts_with('-') || word.find_first_of("./") != word.npos ||
      std::filesystem::exists(word, ignored))
    return std::nullopt;
  throw UsageError(
      fmt::format("\"{}\" is neither a command ({}) nor a file{}; --help lists the options", word,
                  fmt::join(names, ", "), json::suggestion(word, names)));
}

/// "--time-limit 10m (600 s)"
std::vector<std::string> understood_options(const po::variables_map& map) {
  const OptionValues given(map);
  std::vector<std::string> lines;
  for (const auto& [name, value] : map) {
    std::string line = name == "space" ? name : "--" + name;
    if (const auto* const texts = boost::any_cast<Strings>(&value.value()))
      line += fmt::format(" {}", fmt::join(*texts, " "));
    else if (const auto* const text = boost::any_cast<std::string>(&value.value());
             text != nullptr && !text->empty())
      line += " " + *text;
    if (name == "time-limit" || name == "reserve" || name == "trial-timeout")
      line += fmt::format(" ({} s)", given.duration_s(name.c_str()).value_or(0));
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Returns the folder that is looked at. Throws UsageError.
std::string folder_of_status(const po::variables_map& map) {
  const Strings taken{"format", "color", "space"};
  for (const auto& [name, value] : map)
    if (std::ranges::find(taken, name) == taken.end())
      throw UsageError(
          fmt::format("status has no --{}: write dstune-mpi status [--format json] DIR", name));
  const Strings folders = OptionValues(map).all("space");
  if (folders.size() > 1)
    throw UsageError(fmt::format("status takes one results folder, not {}: {}", folders.size(),
                                 fmt::join(folders, " ")));
  return folders.empty() ? "autotuning_results" : folders.front();
}

void refuse_what_check_has_not(const po::variables_map& map) {
  Strings taken{"backend", "format", "quiet", "verbose", "color"};
  const bool is_of_files = map.count("space") > 0;
  if (is_of_files)
    taken.insert(taken.end(), {"deepspeed-version", "gpus-per-node", "nodes", "hostfile", "include",
                               "exclude", "command", "strict", "space"});
  for (const auto& [name, value] : map) {
    if (std::ranges::find(taken, name) != taken.end()) continue;
    if (is_of_files) taken.pop_back();
    throw UsageError(fmt::format("check {} has no --{}: it takes --{}",
                                 is_of_files ? "FILE" : "of a machine", name,
                                 fmt::join(taken, ", --")));
  }
}

/// Returns the words as Boost is to read them.
Strings words_to_parse(int argc, const char* const* argv) {
  Strings words;
  for (int place = 1; place < argc; ++place) {
    const std::string_view word = argv[place];
    if (word == "-h")
      words.emplace_back("--help");
    else if (word == "--verify")
      words.push_back(std::string("--verify=") + own_script);
    else
      words.emplace_back(word);
  }
  return words;
}

/// The option that a word with dashes comes near to, in words.
std::string option_suggestion(const std::string& word, const po::options_description& options) {
  const std::size_t begin = std::min(word.find_first_not_of('-'), word.size());
  Strings names;
  for (const auto& option : options.options())
    names.push_back(option->canonical_display_name(po::command_line_style::allow_long));
  return json::suggestion("--" + word.substr(begin, word.find('=') - begin),
                          {names.begin(), names.end()});
}

/// Throws UsageError.
po::variables_map parse(const Strings& words) {
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
    po::store(po::command_line_parser(words).options(all).positional(positional).style(style).run(),
              map);
  } catch (const po::unknown_option& error) {
    const std::string name = error.get_option_name();
    throw UsageError(fmt::format("there is no option {}{}; --help lists the options",
                                 name.substr(0, name.find('=')),
                                 option_suggestion(name, visible_options())));
  } catch (const po::error& error) {
    throw UsageError(std::string(error.what()) + "; --help lists the options");
  }
  return map;
}

/// Throws UsageError where a command stands behind an option, or a word that comes near to one.
void refuse_late_command(const Strings& spaces) {
  std::vector<std::string_view> names;
  for (const auto& [name, verb] : verbs) names.push_back(name);
  for (const std::string& word : spaces) {
    std::error_code ignored;
    const auto meant = json::nearest(lower_case(word), names);
    if (!meant || std::filesystem::exists(word, ignored)) continue;
    throw UsageError(
        fmt::format("the command comes first: write dstune-mpi {} before all options "
                    "and files, not {} behind them",
                    *meant, word));
  }
}

/// Returns the one space that is given. Throws UsageError.
std::string only_space(const Strings& spaces, bool is_plan) {
  if (spaces.empty())
    throw UsageError(std::string("no space.json is given: ") +
                     (is_plan ? "dstune-mpi plan" : "mpirun -np N dstune-mpi") +
                     " [options] space.json");
  refuse_late_command(spaces);
  std::error_code ignored;
  for (const std::string& word : spaces)
    if (word.starts_with('-') && !std::filesystem::exists(word, ignored))
      throw UsageError(fmt::format("{} is neither an option nor a file{}; --help lists the options",
                                   word, option_suggestion(word, visible_options())));
  if (spaces.size() > 1)
    throw UsageError(
        fmt::format("more than one space.json, {} and {}: give one of them, and each "
                    "option's value behind the option",
                    spaces[0], spaces[1]));
  return spaces.front();
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  for (int i = 0; i < argc; ++i) {
    if (i > 0) line.job.command_line += ' ';
    line.job.command_line += argv[i];
  }
  bool is_status = false;
  if (const std::optional<Verb> verb = argc > 1 ? verb_of(argv[1]) : std::nullopt) {
    line.job.dry_run = verb == Verb::plan;
    line.check = verb == Verb::check;
    is_status = verb == Verb::status;
    line.help = verb == Verb::help;
    if (line.help) return line;
    --argc;
    ++argv;
  }
  const po::variables_map map = parse(words_to_parse(argc, argv));
  line.help = map.count("help") > 0;
  line.version = map.count("version") > 0;
  if (line.help || line.version) return line;

  const OptionValues given(map);
  fill(given, line);
  if (is_status) {
    line.status_of = folder_of_status(map);
  } else if (line.check) {
    refuse_what_check_has_not(map);
    line.check_files = given.all("space");
    line.training_command = given.text("command");
    line.is_strict = given.has("strict");
  } else if (given.has("command") || given.has("strict")) {
    throw UsageError("--command and --strict are for dstune-mpi check FILE: leave them out");
  } else {
    line.job.space_path = only_space(given.all("space"), line.job.dry_run);
  }
  line.understood = understood_options(map);
  return line;
}

std::string help_text() {
  std::ostringstream text;
  text
      << "Finds the fastest DeepSpeed (ZeRO) configuration for a model on this machine, inside one "
         "MPI job.\n\n"
         "  mpirun -np N dstune-mpi [options] space.json\n"
         "  dstune-mpi plan [options] space.json        as --dry-run: no MPI, no file\n"
         "  mpirun -np N dstune-mpi check               what each rank has and how fast it is: no "
         "file\n"
         "  dstune-mpi check FILE...                    what DeepSpeed refuses and drops of a "
         "config\n"
         "  dstune-mpi status [DIR]                     where a job is, by its results folder\n"
         "  dstune-mpi help                             this text\n\n"
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
