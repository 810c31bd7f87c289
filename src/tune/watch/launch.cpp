#include "watch/launch.hpp"

#include <charconv>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/process.hpp"
#include "watch/injection.hpp"

namespace dstune {
namespace {

using Look = std::function<const char*(const char*)>;

std::string_view first_of(const Look& variable, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const char* const text = variable(name);
    if (text != nullptr && *text != '\0') return text;
  }
  return {};
}

std::optional<int> number_of(const Look& variable, std::initializer_list<const char*> names) {
  const std::string_view text = first_of(variable, names);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

/// The server is the launcher's daemon on this node, with a port of its own. Hydra names none: its
/// daemon is the parent.
std::string job_on_this_node(const Look& variable) {
  const std::string_view job = first_of(variable, {"PMIX_NAMESPACE", "PMI_JOBID", "PMI_KVSNAME"});
  const std::string_view server =
      first_of(variable, {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                          "PMIX_SERVER_URI21", "PMIX_SERVER_URI2", "PMIX_SERVER_URI"});
  if (!server.empty()) return fmt::format("{} {}", job, server);
  const ProcessId parent = process_of(::getppid());
  return fmt::format("{} {} {}", job, parent.number, parent.started_at);
}

}  // namespace

Launch find_launch(const Look& variable) {
  const auto rank = number_of(variable, {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  if (!rank) return {};
  Launch launch;
  launch.world_rank = *rank;
  launch.ranks_here =
      number_of(variable, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}).value_or(0);
  const std::string_view recovery = first_of(variable, {"OMPI_MCA_orte_enable_recovery"});
  launch.outlives_ranks = recovery == "1" || recovery == "true";
  std::string job = job_on_this_node(variable);
  try {
    const int size = number_of(variable, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}).value_or(0);
    if (const auto host = pretended_host(*rank, size)) {
      launch.ranks_here = static_cast<int>(host->world_ranks.size());
      job += fmt::format(" {}", host->index);
    }
  } catch (const Error&) {
    // Whoever asks once MPI runs says what is wrong with the list.
  }
  launch.key = fmt::format("{:016x}", std::hash<std::string>()(job));
  return launch;
}

}  // namespace dstune
