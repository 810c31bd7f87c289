#include "batch_system.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

/// In the order of BatchSystem.
constexpr std::array<BatchWords, 4> all_words{{
    {"slurm", "sbatch ", "sbatch", "#SBATCH ", "${SLURM_SUBMIT_DIR:-.}"},
    {"pbs", "qsub ", "pbs", "#PBS ", "${PBS_O_WORKDIR:-.}"},
    {"lsf", "bsub < ", "lsf", "#BSUB ", "${LS_SUBCWD:-.}"},
    {"flux", "flux batch ", "flux", "# flux: ", "."},
}};

/// "01:30:00"
std::string hours_text(double seconds) {
  const auto whole = static_cast<long long>(std::ceil(seconds));
  return fmt::format("{:02}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// The directives of a job, one after the other.
class Request {
 public:
  explicit Request(BatchSystem system) : mark_(words_of(system).mark) {}

  template <class... Values>
  void add(fmt::format_string<Values...> form, Values&&... values) {
    line(mark_, fmt::format(form, std::forward<Values>(values)...));
  }
  void add_text(const std::string& directive) { line(mark_, directive); }
  void add_if(const char* option, const std::string& value) {
    if (!value.empty()) line(mark_, option + value);
  }
  void comment(const std::string& text) { line("# ", text); }
  /// A directive that takes effect when one of its two # is removed.
  void offer(const std::string& directive, const std::string& why) {
    line(std::string("#") + mark_, fmt::format("{:<26} # {}", directive, why));
  }

  [[nodiscard]] std::string text() const { return text_; }

 private:
  void line(const std::string& begin, const std::string& rest) {
    require(directive_violation(rest).empty(), "a directive is one line");
    text_ += begin + rest + "\n";
  }

  const char* mark_;
  std::string text_;
};

constexpr const char* on_gpu_nodes = "on GPU nodes: remove one of the two #";
constexpr const char* alone = "measurements do not like neighbours";

Request slurm_request(const BatchResources& job) {
  Request request(BatchSystem::slurm);
  request.add("--job-name={}", job.job_name);
  request.add("--nodes={}", job.nodes);
  request.add("--ntasks-per-node={}", job.tasks_per_node);
  if (job.cpus_per_task > 0) request.add("--cpus-per-task={}", job.cpus_per_task);
  request.add("--time={}", hours_text(job.time_limit_s));
  request.add_if("--account=", job.account);
  request.add_if("--partition=", job.queue);
  const std::string gpus =
      fmt::format("--gpus-per-node={}", job.gpus_per_node.value_or(job.tasks_per_node));
  if (!job.gpus_per_node) request.offer(gpus, on_gpu_nodes);
  if (job.gpus_per_node.value_or(0) > 0) request.add_text(gpus);
  request.offer("--exclusive", alone);
  request.add("--output=%x-%j.log");
  return request;
}

Request pbs_request(const BatchResources& job) {
  Request request(BatchSystem::pbs);
  request.add("-N {}", job.job_name);
  std::string chunk =
      fmt::format("ncpus={}:mpiprocs={}", job.tasks_per_node * std::max(1, job.cpus_per_task),
                  job.tasks_per_node);
  if (job.cpus_per_task > 0) chunk += fmt::format(":ompthreads={}", job.cpus_per_task);
  if (job.gpus_per_node.value_or(0) > 0) chunk += fmt::format(":ngpus={}", *job.gpus_per_node);
  request.add("-l select={}:{}", job.nodes, chunk);
  if (!job.gpus_per_node)
    request.comment(
        fmt::format("On GPU nodes add  :ngpus={}  to the select line.", job.tasks_per_node));
  request.comment(fmt::format("Torque has no select: -l nodes={}:ppn={}", job.nodes,
                              job.tasks_per_node * std::max(1, job.cpus_per_task)));
  request.add("-l walltime={}", hours_text(job.time_limit_s));
  request.add_if("-A ", job.account);
  request.add_if("-q ", job.queue);
  request.comment("Measurements do not like neighbours:");
  request.add("-l place=scatter:excl");
  request.add("-j oe");
  return request;
}

Request lsf_request(const BatchResources& job) {
  Request request(BatchSystem::lsf);
  request.add("-J {}", job.job_name);
  request.add("-n {}", job.nodes * job.tasks_per_node);
  request.add("-R \"span[ptile={}]\"", job.tasks_per_node);
  if (job.cpus_per_task > 0)
    request.offer(fmt::format("-R \"affinity[core({})]\"", job.cpus_per_task),
                  fmt::format("cores a rank, where the site has affinity; then OMP_NUM_THREADS={}",
                              job.cpus_per_task));
  const std::string gpus =
      fmt::format("-gpu \"num={}\"", job.gpus_per_node.value_or(job.tasks_per_node));
  if (!job.gpus_per_node) request.offer(gpus, on_gpu_nodes);
  if (job.gpus_per_node.value_or(0) > 0) request.add_text(gpus);
  // LSF counts minutes.
  const auto minutes = static_cast<long long>(std::ceil(job.time_limit_s / 60));
  request.add("-W {}:{:02}", minutes / 60, minutes % 60);
  request.add_if("-P ", job.account);
  request.add_if("-q ", job.queue);
  request.offer("-x", alone);
  request.add("-o {}-%J.log", job.job_name);
  return request;
}

Request flux_request(const BatchResources& job) {
  Request request(BatchSystem::flux);
  request.add("--job-name={}", job.job_name);
  request.add("--nodes={}", job.nodes);
  request.add("--nslots={}", job.nodes * job.tasks_per_node);
  if (job.cpus_per_task > 0) request.add("--cores-per-slot={}", job.cpus_per_task);
  if (!job.gpus_per_node)
    request.comment("On GPU nodes add  --gpus-per-slot=1  to a line like these.");
  if (job.gpus_per_node.value_or(0) > 0) request.add("--gpus-per-slot={}", gpus_per_task(job));
  request.add("--time-limit={}s", static_cast<long long>(std::ceil(job.time_limit_s)));
  request.add_if("--bank=", job.account);
  request.add_if("--queue=", job.queue);
  request.comment("Measurements do not like neighbours: add  --exclusive  likewise.");
  request.add("--output={}-{{{{id}}}}.log", job.job_name);
  return request;
}

}  // namespace

std::optional<BatchSystem> batch_system_of(std::string_view name) {
  for (std::size_t place = 0; place < all_words.size(); ++place)
    if (name == all_words.at(place).name) return static_cast<BatchSystem>(place);
  return std::nullopt;
}

const BatchWords& words_of(BatchSystem system) {
  return all_words.at(static_cast<std::size_t>(system));
}

std::string directive_violation(std::string_view text) {
  if (text.empty()) return "it is empty";
  const bool has_control =
      std::ranges::any_of(text, [](unsigned char letter) { return std::iscntrl(letter) != 0; });
  return has_control ? "it has control characters, or more than one line" : "";
}

std::string directive_word_violation(std::string_view text) {
  constexpr std::string_view special = " \"'\\`$;&|<>()#";
  if (text.find_first_of(special) != text.npos) return "it has blanks, quotes or other marks";
  return directive_violation(text);
}

std::string request_lines(const BatchResources& resources, BatchSystem system) {
  for (const std::string* word : {&resources.job_name, &resources.account, &resources.queue})
    require(word->empty() || directive_word_violation(*word).empty(), "it is one word");
  Request (*const requests[])(const BatchResources&) = {slurm_request, pbs_request, lsf_request,
                                                        flux_request};
  Request request = requests[static_cast<std::size_t>(system)](resources);
  for (const std::string& directive : resources.directives) request.add_text(directive);
  return request.text();
}

int gpus_per_task(const BatchResources& resources) {
  const int tasks = resources.tasks_per_node;
  return (resources.gpus_per_node.value_or(0) + tasks - 1) / tasks;
}

std::string one_line(std::string text) {
  for (char& letter : text)
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = '?';
  return text;
}

}  // namespace dstune
