#include "start/rank_devices.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/comm/agreement.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/core/user_python.hpp"
#include "dstune/device/device.hpp"
#include "dstune/kernels/cuda.hpp"
#include "watch/injection.hpp"

extern char** environ;

namespace dstune {
namespace {

using json::Value;

/// The ranks share so much of a host's memory unless the document says otherwise.
constexpr double share_of_host_memory = 0.8;
/// … and with what they offload; the rest is for processes and libraries.
constexpr double share_with_offload = 0.95;

/// The ranks of the caller's node.
const std::vector<int>& ranks_here(const Topology& topology) {
  const int node = topology.node_of_rank[static_cast<std::size_t>(topology.world_rank)];
  return topology.ranks_of_node[static_cast<std::size_t>(node)];
}

/// The rank's place on its node, among those that have GPUs to themselves.
int place_on_node(const Topology& topology, const IdleRanks& idle) {
  return static_cast<int>(std::ranges::count_if(ranks_here(topology), [&](int rank) {
    return rank < topology.world_rank && !(idle.has_coordinator && rank == 0);
  }));
}

/// Empty, or why this rank has no GPU.
std::string find_gpu(const Topology& topology, const JobOptions& options, const IdleRanks& idle,
                     FoundDevice& found) {
  const bool trains = !idle.contain(topology.world_rank);
  // Rank 0 of a dry run predicts times, from what its GPU takes.
  const auto make = trains || options.dry_run ? make_cuda_device : make_device_like_cuda;
  try {
    found.device = make(place_on_node(topology, idle), host_memory_bytes(),
                        topology.threads_of_rank, &found.gpu);
    // A rank that does not train shares nothing.
    if (!trains) found.gpu.uuid.clear();
    return {};
  } catch (const Error& error) {
    if (trains || topology.world_rank == 0) return error.what();
  }
  // Its GPU may be the reason why it is left out.
  found.device = std::make_unique<CpuDevice>(host_memory_bytes(), topology.threads_of_rank);
  found.gpu.name = "none";
  return {};
}

/// Folders beyond the dynamic linker's that may have NVIDIA's libraries; the kernels look there,
/// too.
std::vector<std::string> library_folders() {
  std::vector<std::string> folders = gpu_library_folders(own_python_environment());
  kernels::set_cuda_library_folders(folders);
  return folders;
}

/// The first of the ranks' texts that is not empty, with a hint. Collective over the world.
std::string missing_anywhere(const Communicator& world, const Topology& topology,
                             const std::string& missing) {
  const std::vector<std::string> all = gather_texts(world, missing);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    return fmt::format("{} (rank {}, {}); install it, or name its folder in LD_LIBRARY_PATH",
                       all[rank], rank,
                       topology.hosts[static_cast<std::size_t>(topology.node_of_rank[rank])]);
  }
  return "";
}

/// Sets what is missing. Collective over the world.
void find_missing_libraries(const Communicator& world, const Topology& topology,
                            FoundDevice& found) {
  std::set<std::string> gpus;
  for (const std::string& gpu : gather_texts(world, found.gpu.uuid))
    if (!gpu.empty()) gpus.insert(gpu);
  const bool trains = !found.gpu.uuid.empty();
  const bool lacks_nccl = trains && gpus.size() > 1 && !found.nccl.library;
  found.missing_library = missing_anywhere(world, topology, trains ? missing_gpu_library() : "");
  found.missing_nccl =
      missing_anywhere(world, topology, lacks_nccl ? "NCCL: " + found.nccl.description : "");
}

FoundDevice cpu_device(const Topology& topology) {
  FoundDevice found;
  found.device = std::make_unique<CpuDevice>(host_memory_bytes(), topology.threads_of_rank);
  return found;
}

/// Returns the CPU's device after a reason against GPUs. Throws DeviceError with --backend cuda.
FoundDevice without_gpu(const Topology& topology, const JobOptions& options,
                        const std::string& reason) {
  if (options.backend == Backend::cuda)
    throw DeviceError("--backend cuda: " + reason + "; use cpu");
  if (kernels::num_cuda_devices() > 0) log::warning(fmt::format(log_text::gpus_not_used, reason));
  return cpu_device(topology);
}

void warn_of_cuda() {
  log::warning(log_text::cuda_backend);
}

/// Variables whose values are shown: what they mean is known, and none of it is a secret.
constexpr std::string_view shown_variables[] = {
    // Threads and devices.
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "OMP_DYNAMIC",
    "OMP_MAX_ACTIVE_LEVELS", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "OMP_SCHEDULE",
    "OMP_STACKSIZE", "OMP_THREAD_LIMIT", "OMP_WAIT_POLICY",
    // NCCL.
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_CROSS_NIC", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_RETRY_CNT", "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_IB_TIMEOUT", "NCCL_LAUNCH_MODE",
    "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_NTHREADS",
    // Networks below MPI.
    "FI_EFA_USE_DEVICE_RDMA", "FI_LOG_LEVEL", "FI_PROVIDER", "UCX_IB_GID_INDEX", "UCX_LOG_LEVEL",
    "UCX_NET_DEVICES", "UCX_RNDV_SCHEME", "UCX_RNDV_THRESH", "UCX_TLS",
    // Open MPI.
    "OMPI_MCA_btl", "OMPI_MCA_btl_tcp_if_exclude", "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_btl_vader_single_copy_mechanism", "OMPI_MCA_coll", "OMPI_MCA_coll_hcoll_enable",
    "OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_mpi_leave_pinned",
    "OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_mtl", "OMPI_MCA_osc", "OMPI_MCA_pml",
    "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_rmaps_base_oversubscribe",
    // The batch system's job.
    "COBALT_JOBID", "FLUX_JOB_ID", "FLUX_JOB_NNODES", "FLUX_JOB_SIZE", "LSB_DJOB_NUMPROC",
    "LSB_JOBID", "LSB_MCPU_HOSTS", "LSB_QUEUE", "NCPUS", "PBS_JOBID", "PBS_NODEFILE",
    "PBS_NUM_NODES", "PBS_NUM_PPN", "PBS_QUEUE", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_HET_SIZE", "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_END_TIME", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SRUN_CPUS_PER_TASK",
    // Our own.
    "DSTUNE_CUDA_ALGORITHMS", "DSTUNE_CUDA_GRAPHS", "DSTUNE_INJECT", "DSTUNE_POWERCAP",
    "DSTUNE_PRETEND_HOSTS"};

/// Others that act on a job are told by name alone.
constexpr std::string_view named_prefixes[] = {"CUDA_", "DSTUNE_",   "FI_", "NCCL_",
                                               "OMP_",  "OMPI_MCA_", "UCX_"};

/// The values of those that may be shown, and the names of others.
std::pair<Value, std::set<std::string>> variables_here() {
  Value shown = Value::object();
  std::set<std::string> named;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (is_shown_variable(name))
      shown[std::string(name)] = text.substr(equals + 1);
    else if (std::ranges::any_of(named_prefixes,
                                 [&](std::string_view prefix) { return name.starts_with(prefix); }))
      named.emplace(name);
  }
  return {std::move(shown), std::move(named)};
}

}  // namespace

template <class Archive>
void members(Archive& archive, json::Of<Archive, RankDevice>& device) {
  archive("description", device.description);
  archive("threads", device.threads);
  archive("memory_bytes", device.memory_bytes);
  archive("host_bytes", device.host_bytes);
  archive("backend", device.backend);
  archive("gpu", device.gpu);
  archive("context_bytes", device.context_bytes);
  archive("library_bytes", device.library_bytes);
  archive("free_bytes", device.free_bytes);
  archive("place", device.place);
}
template void members(json::Writer&, const RankDevice&);
template void members(json::Reader&, RankDevice&);

bool is_shown_variable(std::string_view name) {
  return std::ranges::find(shown_variables, name) != std::end(shown_variables);
}

Topology with_asked_threads(Topology topology, const char* omp_num_threads) {
  if (omp_num_threads == nullptr || *omp_num_threads == '\0') return topology;
  constexpr int max_threads = 4096;
  const std::string_view text = trimmed(omp_num_threads);
  const std::string_view first = trimmed(text.substr(0, text.find(',')));
  int threads = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
  if (error != std::errc() || end != first.data() + first.size() || threads < 1 ||
      threads > max_threads) {
    log::warning(fmt::format(log_text::wrong_omp_threads, text, topology.threads_of_rank));
    return topology;
  }
  topology.share_core = topology.share_core || threads > topology.threads_of_rank;
  topology.threads_of_rank = threads;
  return topology;
}

FoundNode find_node(const Communicator& world) {
  const auto pretended = pretended_host(world.rank(), world.size());
  FoundNode found{.node = pretended ? world.create_group(pretended->world_ranks, pretended->index)
                                    : world.split_shared(),
                  .topology = {},
                  .is_pretended = pretended.has_value()};
  found.topology =
      with_asked_threads(find_topology(world, found.node, pretended ? pretended->name : ""),
                         std::getenv("OMP_NUM_THREADS"));
  return found;
}

bool IdleRanks::contain(int world_rank) const {
  if (world_rank == 0 && has_coordinator) return true;
  return std::ranges::find(left_out, world_rank) != left_out.end();
}

FoundDevice find_device(const Communicator& world, const Topology& topology,
                        const JobOptions& options, const IdleRanks& idle) {
  FoundDevice found;
  if (options.backend == Backend::cpu) return cpu_device(topology);
  const std::vector<std::string> folders = library_folders();
  const std::vector<std::string> reasons =
      gather_texts(world, find_gpu(topology, options, idle, found));
  const auto first = std::ranges::find_if_not(reasons, &std::string::empty);
  if (first == reasons.end()) {
    found.nccl = nccl::find_library(nccl::library_name, folders);
    find_missing_libraries(world, topology, found);
    warn_of_cuda();
    return found;
  }
  const auto rank = static_cast<std::size_t>(first - reasons.begin());
  const std::string& host = topology.hosts[static_cast<std::size_t>(topology.node_of_rank[rank])];
  return without_gpu(topology, options,
                     *first + " (rank " + std::to_string(rank) + ", " + host + ")");
}

void require_libraries(const FoundDevice& found, Backend backend) {
  if (!found.missing_library.empty()) {
    throw DeviceError("a training step on GPUs needs " + found.missing_library +
                      "; --backend cpu does without");
  }
  if (backend == Backend::cuda && !found.missing_nccl.empty()) {
    throw DeviceError("--backend cuda: " + found.missing_nccl +
                      "; --backend auto goes on without it, slower, and says so");
  }
}

FoundDevice find_device_of_plan(const Topology& topology, const JobOptions& options) {
  FoundDevice found;
  if (options.backend == Backend::cpu) return cpu_device(topology);
  library_folders();
  const std::string reason =
      find_gpu(topology, options, {.has_coordinator = options.dedicated_coordinator}, found);
  if (!reason.empty()) return without_gpu(topology, options, reason);
  warn_of_cuda();
  return found;
}

void log_ranks(const Topology& topology, const std::vector<RankDevice>& devices) {
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto node = static_cast<std::size_t>(topology.node_of_rank[rank]);
    log::debug(fmt::format("rank {}: host {}, {}, {} thread(s)", rank, topology.hosts[node],
                           devices[rank].description, devices[rank].threads));
  }
}

RankDevice describe(const Topology& topology, const FoundDevice& found) {
  Device& device = *found.device;
  const double host_bytes =
      static_cast<double>(host_memory_bytes()) / static_cast<double>(ranks_here(topology).size());
  // Many ranks on a small host: their processes alone may need more than is set apart for them.
  const double left_bytes =
      std::max(0.0, host_bytes - static_cast<double>(process_resident_bytes()));
  RankDevice result{
      .description = device.description(),
      .threads = topology.threads_of_rank,
      .memory_bytes =
          static_cast<std::int64_t>(std::min(share_of_host_memory * host_bytes, left_bytes)),
      .host_bytes =
          static_cast<std::int64_t>(std::min(share_with_offload * host_bytes, left_bytes))};
  if (found.gpu.name.empty()) return result;
  result.memory_bytes = device.budget().limit_bytes();
  result.backend = BackendKind::cuda;
  result.gpu = found.gpu.uuid;
  result.context_bytes = found.gpu.context_bytes.value_or(0);
  result.library_bytes = found.gpu.library_bytes.value_or(0);
  result.free_bytes = found.gpu.free_bytes;
  return result;
}

void share_gpus(std::vector<RankDevice>& devices) {
  std::map<std::string, int> ranks;
  for (const RankDevice& device : devices) ++ranks[device.gpu];
  for (RankDevice& device : devices) {
    const int sharing = ranks[device.gpu];
    if (device.gpu.empty() || sharing == 1) continue;
    device.description += ", shared by " + std::to_string(sharing) + " ranks";
    device.memory_bytes /= sharing;
  }
}

std::vector<RankDevice> gather_devices(const Communicator& world, const RankDevice& mine) {
  std::vector<RankDevice> devices;
  for (const Bytes& bytes : world.all_gather(json::pack(mine)))
    devices.push_back(json::unpack<RankDevice>(bytes, "device of a rank"));
  share_gpus(devices);
  return devices;
}

std::vector<std::string> gpus_of_node(const Topology& topology,
                                      const std::vector<RankDevice>& devices) {
  std::vector<std::string> gpus;
  for (const int rank : ranks_here(topology)) {
    const std::string& gpu = devices[static_cast<std::size_t>(rank)].gpu;
    if (!gpu.empty()) gpus.push_back(gpu);
  }
  return gpus;
}

Value machine_fingerprint(const std::vector<std::vector<int>>& ranks_of_node,
                          const std::vector<RankDevice>& devices) {
  std::set<int> all;
  Value devices_a_node = Value::array();
  for (const auto& ranks : ranks_of_node) {
    all.insert(ranks.begin(), ranks.end());
    devices_a_node.push_back(ranks.size());
  }
  Value kinds = Value::array();
  for (const int rank : all) {
    const std::string& kind = devices[static_cast<std::size_t>(rank)].description;
    if (kinds.empty() || kinds.back() != kind) kinds.push_back(kind);
  }
  const BackendKind backend = devices[static_cast<std::size_t>(*all.begin())].backend;
  return {{"backend", to_text(backend)}, {"devices", kinds}, {"devices_a_node", devices_a_node}};
}

Value environment_info(const Topology& topology, const std::vector<RankDevice>& devices,
                       const std::string& version, const std::string& command_line) {
  Value ranks = Value::array();
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const int node = topology.node_of_rank[rank];
    ranks.push_back({{"rank", rank},
                     {"node", node},
                     {"host", topology.hosts[static_cast<std::size_t>(node)]},
                     {"backend", to_text(devices[rank].backend)},
                     {"device", devices[rank].description},
                     {"gpu", devices[rank].gpu},
                     {"threads", devices[rank].threads},
                     {"memory_bytes", devices[rank].memory_bytes}});
    if (devices[rank].context_bytes > 0)
      ranks.back()["context_bytes"] = devices[rank].context_bytes;
    if (devices[rank].library_bytes > 0)
      ranks.back()["library_bytes"] = devices[rank].library_bytes;
  }
  auto [shown, named] = variables_here();
  return {{"version", version},
          {"command", command_line},
          {"started_at", format_time(std::chrono::system_clock::now())},
          {"mpi", MpiEnvironment::library_version()},
          {"compiler", __VERSION__},
          {"hosts", topology.hosts},
          {"ranks", ranks},
          {"clocks", {{"processor_mhz", processor_clock_mhz()}}},
          {"variables", std::move(shown)},
          {"other_variables", std::move(named)}};
}

}  // namespace dstune
