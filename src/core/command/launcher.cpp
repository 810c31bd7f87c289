#include "command/launcher.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace dstune {

namespace {

using Words = std::vector<std::string>;

constexpr OptionSyntax srun_syntax{
    .with_value =
        "--nodes|-N --ntasks|-n --ntasks-per-node --nodelist|-w --account|-A --bcast --begin -b "
        "--extra-node-info|-B --cpus-per-task|-c --constraint|-C --dependency|-d --chdir|-D "
        "--error|-e --preserve-env-file --exclude|-x --gpus|-G --input|-i --job-name|-J "
        "--licenses|-L --distribution|-m --nodefile|-F --output|-o --partition|-p --qos|-q "
        "--relative|-r --core-spec|-S --thread-spec --time|-t --threads|-T --wait|-W "
        "--clusters|-M --comment --container --container-id --container-image --container-mounts "
        "--container-workdir --container-name --container-env --container-writable "
        "--cores-per-socket --cpu-bind --cpu-freq --cpus-per-gpu --deadline --delay-boot "
        "--epilog --export --export-file --gid --gpu-bind --gpu-freq --gpus-per-node "
        "--gpus-per-socket --gpus-per-task --gres --gres-flags --hint --jobid "
        "--mail-type --mail-user --mcs-label --mem --mem-bind --mem-per-cpu --mem-per-gpu "
        "--mincpus --mpi --msg-timeout --network --ntasks-per-core --ntasks-per-gpu "
        "--ntasks-per-socket --open-mode --power --prefer --priority --profile --prolog "
        "--reservation --signal --slurmd-debug --sockets-per-node --switches --task-epilog "
        "--task-prolog --thread-spec --threads-per-core --time-min --tmp --tres-bind "
        "--tres-per-task --uid --wckey",
    .flags =
        "--exclusive --label|-l --no-allocate|-Z --no-kill|-k --overcommit|-O --overlap --pty "
        "--preserve-env|-E --quiet|-Q --unbuffered|-u --verbose|-v --share|-s --oversubscribe "
        "--spread-job --use-min-nodes --hold|-H --contiguous --immediate|-I --exact --whole "
        "--disable-status|-X --propagate --resv-ports --nice --reboot --test-only "
        "--kill-on-bad-exit|-K --x11 "
        "--compress --send-libs --get-user-env --interactive --multi-prog --het-group "
        "--no-container-mount-home --no-container-remap-root --no-container-entrypoint",
    .joins_short_values = true};

constexpr OptionSyntax mpirun_syntax{
    .with_value =
        "-np|--np|-n|--n|-c|--c --npernode|-npernode|-N|--N -ppn|--ppn|-perhost "
        "--npersocket|-npersocket --map-by|-map-by --bind-to|-bind-to --rank-by|-rank-by "
        "--host|-host|-H|--H -hosts --hostfile|-hostfile --machinefile|-machinefile "
        "--default-hostfile -f -x --x --wdir|-wdir|-wd|--wd --path|-path --prefix|-prefix "
        "--report-uri --output-filename --timeout --rankfile|-rf --cpus-per-proc --cpus-per-rank "
        "--stdin --app --am --personality --cpu-list --cpu-set --tune --xterm --ppr --output "
        "--runtime-options --prtemca-file --ompi-server --max-restarts --rmaps "
        "-genvlist -envlist -membind -launcher -bootstrap -launcher-exec -bootstrap-exec -iface "
        "-outfile-pattern -errfile-pattern -usize -demux -order-nodes -localhost -rmk -env-file "
        "-s -iface -pmi-port -umask -gpus-per-proc",
    .flags =
        "--pernode|-pernode --allow-run-as-root --oversubscribe|-oversubscribe "
        "--nooversubscribe --no-oversubscribe --bynode --byslot --bycore --bysocket "
        "--bind-to-core --bind-to-socket --bind-to-none --report-bindings|-report-bindings "
        "--tag-output|-tag-output --timestamp-output --quiet|-q --verbose|-v --debug "
        "--debug-daemons "
        "--display-map|-display-map --display-allocation|-display-allocation --display-topo "
        "--nolocal --novm --leave-session-attached --use-hwthread-cpus --enable-recovery "
        "--disable-recovery --continuous --do-not-launch --xml --index-argv-by-rank "
        "--preload-binary --mca-base-env-list --merge-stderr-to-stdout "
        "-genvall -genvnone -envall -envnone -rr -prepend-rank -l -print-rank-map "
        "-print-all-exitcodes -profile -info -disable-hostname-propagation "
        "-enable-hostname-propagation -disable-x -enable-x -check_mpi -disable-auto-cleanup "
        "-enable-auto-cleanup",
    .with_two_values = "--mca|-mca --gmca|-gmca --pmca --prtemca --pmixmca -genv -env"};

constexpr OptionSyntax deepspeed_syntax{
    .with_value =
        "--num_nodes --num_gpus|--num_accelerators --include|-i --exclude|-e --hostfile|-H "
        "--master_port --master_addr --node_rank --launcher --launcher_args "
        "--enable_each_rank_log --autotuning --bind_core_list --ssh_port --venv_script "
        "--log_level",
    .flags =
        "--module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid "
        "--bind_cores_to_rank --quiet|-q --help|-h",
    .abbreviates = true};

constexpr OptionSyntax torchrun_syntax{
    .with_value =
        "--nnodes --nproc_per_node --rdzv_backend --rdzv_endpoint --rdzv_id --rdzv_conf "
        "--max_restarts --monitor_interval --start_method --event_log_handler --role --log_dir "
        "--redirects|-r --tee|-t --log_line_prefix_template --local_ranks_filter "
        "--duplicate_stdout_filters --duplicate_stderr_filters --node_rank --master_addr "
        "--master_port --local_addr --logs_specs --numa_binding --signals_to_handle "
        "--shutdown_timeout --print_completion",
    .flags =
        "--standalone --module|-m --no_python --run_path --virtual_local_rank --use_env --help|-h",
    .abbreviates = true,
    .dashes_are_lines = true};

constexpr OptionSyntax accelerate_syntax{
    .with_value = "--tee|-t",
    .flags =
        "--quiet|-q --cpu --multi_gpu --tpu --enable_cpu_affinity --dynamo_use_fullgraph "
        "--dynamo_use_dynamic --dynamo_use_regional_compilation --use_deepspeed --use_fsdp "
        "--use_parallelism_config --use_megatron_lm --same_network --module|-m --no_python "
        "--tpu_cluster --no_tpu_cluster --tpu_use_sudo --downcast_bf16 "
        "--fp8_use_autocast_during_eval --debug --help|-h",
    .unknown = OptionSyntax::Unknown::takes_value,
    .dashes_are_lines = true};

constexpr OptionSyntax python_syntax{
    .with_value = "-m -c -W -X --check-hash-based-pycs",
    .flags = "-b -bb -B -d -E -i -I -O -OO -P -q -s -S -u -v -x -uB -Bu"};

/// Programs that run the command behind their own words, and leave it as it is.
struct Prefix {
  std::string_view name;
  OptionSyntax syntax;
  std::size_t num_operands = 0;
  bool sets_variables = false;  ///< NAME=value may stand in front of the command
  std::string_view verb = "";   ///< "run", as in "conda run"
};
constexpr std::array prefixes{
    Prefix{"env",
           {.with_value = "-u|--unset -C|--chdir", .flags = "-i|--ignore-environment"},
           0,
           true},
    Prefix{"time", {.with_value = "-f|--format -o|--output", .flags = "-p -v -a"}},
    Prefix{"exec", {.with_value = "-a", .flags = "-c -l"}},
    Prefix{"command", {.with_value = "", .flags = "-p"}},
    Prefix{"nohup", {}},
    Prefix{"setsid", {.with_value = "", .flags = "-w|--wait -f|--fork"}},
    Prefix{"nice", {.with_value = "-n|--adjustment", .flags = "", .joins_short_values = true}},
    Prefix{"stdbuf",
           {.with_value = "-i|--input -o|--output -e|--error",
            .flags = "",
            .joins_short_values = true}},
    Prefix{
        "timeout",
        {.with_value = "-s|--signal -k|--kill-after", .flags = "--foreground --preserve-status -v"},
        1},
    Prefix{"numactl",
           {.with_value = "-m|--membind -N|--cpunodebind -C|--physcpubind -i|--interleave "
                          "-p|--preferred",
            .flags = "-l|--localalloc -a|--all",
            .joins_short_values = true}},
    Prefix{"conda",
           {.with_value = "-n|--name -p|--prefix --cwd",
            .flags = "--no-capture-output --live-stream -v"},
           0,
           false,
           "run"},
    Prefix{"mamba",
           {.with_value = "-n|--name -p|--prefix --cwd", .flags = "--no-capture-output -v"},
           0,
           false,
           "run"},
    Prefix{
        "micromamba", {.with_value = "-n|--name -p|--prefix --cwd", .flags = ""}, 0, false, "run"},
    Prefix{
        "uv", {.with_value = "--with --python|-p", .flags = "--no-sync --frozen"}, 0, false, "run"},
    Prefix{"poetry", {}, 0, false, "run"}};

bool is_assignment(const std::string& word) {
  return word.find('=') != std::string::npos && word.find('=') > 0 && word.front() != '-';
}

/// The place behind programs that run the rest as it is.
std::size_t behind_prefixes(const Words& words, std::size_t at) {
  while (at < words.size()) {
    const std::string name = base_name(words[at]);
    const auto* prefix = std::find_if(prefixes.begin(), prefixes.end(), [&](const Prefix& each) {
      return each.name == name &&
             (each.verb.empty() || (at + 1 < words.size() && words[at + 1] == each.verb));
    });
    if (prefix == prefixes.end()) return at;
    const GivenOptions options =
        read_options(words, at + (prefix->verb.empty() ? 1 : 2), prefix->syntax);
    if (!options.unknown.empty()) return at;
    at = options.end + prefix->num_operands;
    while (prefix->sets_variables && at < words.size() && is_assignment(words[at])) ++at;
  }
  return at;
}

StarterKind starter_of(const std::string& name) {
  if (name == "srun") return StarterKind::srun;
  for (const std::string_view each :
       {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "mpirun.openmpi",
        "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"})
    if (name == each) return StarterKind::mpirun;
  return StarterKind::none;
}

MpiKind mpi_of(const std::string& name, const GivenOptions& options) {
  if (name == "orterun" || name == "prterun" || name.ends_with(".openmpi"))
    return MpiKind::open_mpi;
  if (name == "mpiexec.hydra" || name.ends_with(".mpich")) return MpiKind::hydra;
  for (const std::string_view own : {"--mca", "--npernode", "--allow-run-as-root", "-x", "--x",
                                     "--pernode", "--oversubscribe", "--report-bindings"})
    if (options.find(own) != nullptr) return MpiKind::open_mpi;
  for (const std::string_view own : {"-genv", "-ppn", "-genvall", "-genvlist", "-env", "-hosts"})
    if (options.find(own) != nullptr) return MpiKind::hydra;
  return MpiKind::unknown;
}

bool is_python(const std::string& name) {
  return name.starts_with("python") &&
         name.find_first_not_of("0123456789.", std::string_view("python").size()) == name.npos;
}

struct Module {
  std::string_view name;
  LauncherKind kind;
  const OptionSyntax* syntax;
};
constexpr std::array modules{
    Module{"deepspeed", LauncherKind::deepspeed, &deepspeed_syntax},
    Module{"deepspeed.launcher.runner", LauncherKind::deepspeed, &deepspeed_syntax},
    Module{"torch.distributed.run", LauncherKind::torchrun, &torchrun_syntax},
    Module{"torch.distributed.launch", LauncherKind::torchrun, &torchrun_syntax},
    Module{"accelerate.commands.launch", LauncherKind::accelerate, &accelerate_syntax}};

void set_launcher(LauncherChain& chain, LauncherKind kind, GivenOptions options) {
  chain.kind = kind;
  chain.options = std::move(options);
  if (chain.options.unknown.empty()) return;
  chain.reason = fmt::format("{} of {} is not known here", chain.options.unknown, chain.name);
  chain.kind = LauncherKind::unknown;
}

/// The interpreter, and the launcher that it runs as a module.
void read_python(const Words& words, LauncherChain& chain) {
  GivenOptions options = read_options(words, chain.word + 1, python_syntax);
  // A module ends the interpreter's own options: what follows is the module's.
  for (std::size_t each = 0; each < options.all.size(); ++each) {
    const GivenOption& option = options.all[each];
    if (option.name == "-c") {
      chain.reason = "it runs a text of Python";
      return;
    }
    if (option.name != "-m") continue;
    for (const Module& module : modules) {
      if (module.name != option.value) continue;
      chain.name = option.value;
      set_launcher(chain, module.kind, read_options(words, option.value_word + 1, *module.syntax));
      return;
    }
    options.all.resize(each + 1);
    options.unknown.clear();
    options.end = option.value_word;
    break;
  }
  set_launcher(chain, LauncherKind::python, std::move(options));
}

void read_inner(const Words& words, LauncherChain& chain) {
  if (chain.word >= words.size()) {
    chain.reason = "it starts nothing";
    return;
  }
  chain.name = base_name(words[chain.word]);
  const std::size_t next = chain.word + 1;
  if (chain.name == "deepspeed" || chain.name == "ds")
    set_launcher(chain, LauncherKind::deepspeed, read_options(words, next, deepspeed_syntax));
  else if (chain.name == "torchrun")
    set_launcher(chain, LauncherKind::torchrun, read_options(words, next, torchrun_syntax));
  else if (chain.name == "accelerate-launch")
    set_launcher(chain, LauncherKind::accelerate, read_options(words, next, accelerate_syntax));
  else if (chain.name == "accelerate" && next < words.size() && words[next] == "launch")
    set_launcher(chain, LauncherKind::accelerate, read_options(words, next + 1, accelerate_syntax));
  else if (is_python(chain.name))
    read_python(words, chain);
  else if (chain.name.ends_with(".py"))
    set_launcher(chain, LauncherKind::script, {{}, next, chain.word, ""});
  else
    chain.reason = fmt::format("it can not be seen how many ranks {} starts", words[chain.word]);
}

}  // namespace

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

LauncherChain read_launcher(const Words& words) {
  LauncherChain chain;
  chain.word = behind_prefixes(words, 0);
  if (chain.word < words.size()) chain.starter_name = base_name(words[chain.word]);
  chain.starter = starter_of(chain.starter_name);
  if (chain.starter != StarterKind::none) {
    const bool is_srun = chain.starter == StarterKind::srun;
    chain.starter_options =
        read_options(words, chain.word + 1, is_srun ? srun_syntax : mpirun_syntax);
    if (!is_srun) chain.mpi = mpi_of(chain.starter_name, chain.starter_options);
    if (const std::string& unknown = chain.starter_options.unknown; !unknown.empty()) {
      chain.reason = fmt::format("{} of {} is not known here", unknown, chain.starter_name);
      return chain;
    }
    chain.word = behind_prefixes(words, chain.starter_options.end);
  }
  read_inner(words, chain);
  const bool has_options = chain.kind == LauncherKind::deepspeed ||
                           chain.kind == LauncherKind::torchrun ||
                           chain.kind == LauncherKind::accelerate;
  const std::size_t next = chain.options.end;
  if (has_options && next < words.size() && is_variable(words[next]) &&
      !words[next].ends_with(".py")) {
    chain.kind = LauncherKind::unknown;
    chain.reason = fmt::format("{} may hold options of {}", words[next], chain.name);
  }
  // Several programs beside each other: "mpirun -n 1 a : -n 2 b".
  if (chain.starter != StarterKind::none && std::ranges::count(words, ":") > 0) {
    chain.kind = LauncherKind::unknown;
    chain.reason = fmt::format("{} starts several programs", chain.starter_name);
  }
  return chain;
}

}  // namespace dstune
