#include "start/launch_facts.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

bool is_set(const LookUp& variable, const char* name) {
  const char* const text = variable(name);
  return text != nullptr && *text != '\0';
}

/// The number that a text begins with; 0 for none.
int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return std::max(0, number);
}

int number_of(const LookUp& variable, const char* name) {
  const char* const text = variable(name);
  return text == nullptr ? 0 : leading_number(text);
}

Launcher find_launcher(const LookUp& variable) {
  if (is_set(variable, "OMPI_COMM_WORLD_SIZE")) return Launcher::open_mpi;
  // Hydra starts its own processes by srun, whose variables ranks then have, too.
  if (is_set(variable, "MPI_LOCALNRANKS")) return Launcher::hydra;
  if (is_set(variable, "SLURM_STEP_NUM_TASKS") && is_set(variable, "SLURM_PROCID"))
    return Launcher::srun;
  return Launcher::unknown;
}

/// The largest number of a list like Slurm's "32(x2),16".
int largest_of(const char* list) {
  int largest = 0;
  if (list == nullptr) return largest;
  for (const std::string_view part : split(list, ','))
    largest = std::max(largest, leading_number(part));
  return largest;
}

/// A heterogeneous job has a variable for each component, else there is one.
int sum_of_components(const LookUp& variable, const std::string& name, int components) {
  int sum = 0;
  for (int component = 0; component < components; ++component)
    sum += number_of(variable, fmt::format("{}_HET_GROUP_{}", name, component).c_str());
  return sum > 0 ? sum : number_of(variable, name.c_str());
}

void add_slurm(const LookUp& variable, LaunchFacts& facts) {
  facts.components = number_of(variable, "SLURM_HET_SIZE");
  facts.nodes = sum_of_components(variable, "SLURM_JOB_NUM_NODES", facts.components);
  facts.tasks = sum_of_components(variable, "SLURM_NTASKS", facts.components);
  facts.step_tasks = number_of(variable, "SLURM_STEP_NUM_TASKS");
  facts.cpus_a_node = largest_of(variable("SLURM_JOB_CPUS_PER_NODE"));
}

/// A line for each rank, or for each chunk of the job where it does not say how many ranks.
void add_pbs(const LookUp& variable, LaunchFacts& facts) {
  facts.cpus_a_node = number_of(variable, "NCPUS");
  const char* const path = variable("PBS_NODEFILE");
  if (path == nullptr) return;
  std::ifstream file(path);
  std::set<std::string> nodes;
  for (std::string name; file >> name; ++facts.tasks) nodes.insert(name);
  facts.nodes = static_cast<int>(nodes.size());
}

/// "node1 20 node2 20"; where the first one has a slot and others have more, it is the launch node.
void add_lsf(const LookUp& variable, LaunchFacts& facts) {
  const char* const list = variable("LSB_MCPU_HOSTS");
  std::istringstream words(list == nullptr ? "" : list);
  std::string name;
  int slots = 0, first_slots = 0, most_slots = 0;
  while (words >> name >> slots) {
    if (facts.nodes++ == 0) first_slots = slots;
    most_slots = std::max(most_slots, slots);
  }
  if (first_slots == 1 && most_slots > 1) --facts.nodes;
}

}  // namespace

const char* own_variable(const char* name) {
  return std::getenv(name);
}

BatchSystem find_batch_system(const LookUp& variable) {
  if (is_set(variable, "FLUX_JOB_ID")) return BatchSystem::flux;
  if (is_set(variable, "SLURM_JOB_ID")) return BatchSystem::slurm;
  if (is_set(variable, "PBS_JOBID")) return BatchSystem::pbs;
  if (is_set(variable, "LSB_JOBID")) return BatchSystem::lsf;
  return BatchSystem::none;
}

const char* to_text(BatchSystem batch) {
  switch (batch) {
    case BatchSystem::slurm:
      return "Slurm";
    case BatchSystem::pbs:
      return "PBS";
    case BatchSystem::lsf:
      return "LSF";
    case BatchSystem::flux:
      return "Flux";
    case BatchSystem::none:
      break;
  }
  return "";
}

LaunchFacts find_launch_facts(const LookUp& variable) {
  LaunchFacts facts{.launcher = find_launcher(variable), .batch = find_batch_system(variable)};
  facts.asks_one_thread = number_of(variable, "OMP_NUM_THREADS") == 1;
  switch (facts.batch) {
    case BatchSystem::slurm:
      add_slurm(variable, facts);
      break;
    case BatchSystem::pbs:
      add_pbs(variable, facts);
      break;
    case BatchSystem::lsf:
      add_lsf(variable, facts);
      break;
    case BatchSystem::flux:
      facts.nodes = number_of(variable, "FLUX_JOB_NNODES");
      facts.tasks = number_of(variable, "FLUX_JOB_SIZE");
      break;
    case BatchSystem::none:
      break;
  }
  return facts;
}

int given_gpus(const LookUp& variable) {
  if (const int here = number_of(variable, "SLURM_GPUS_ON_NODE"); here > 0) return here;
  const char* const asked = variable("SLURM_GPUS_PER_NODE");
  int sum = 0;
  if (asked == nullptr) return sum;
  for (const std::string_view part : split(asked, ','))
    sum += leading_number(part.substr(part.rfind(':') + 1));
  return sum;
}

int named_gpus(const char* cuda_visible_devices) {
  if (cuda_visible_devices == nullptr) return -1;
  int named = 0;
  for (const std::string_view part : split(cuda_visible_devices, ',')) {
    const std::string_view name = trimmed(part);
    if (name.starts_with("MIG-")) return -1;
    // CUDA shows those before the first that is none.
    const bool is_number =
        !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number && !name.starts_with("GPU-")) break;
    ++named;
  }
  return named;
}

}  // namespace dstune
