#pragma once
/// The starters of the training's ranks: a chain of programs at the front of a command. Local.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "command/launch_options.hpp"

namespace dstune {

/// A program that starts tasks on nodes, in front of the launcher.
enum class StarterKind { none, srun, mpirun };
/// The kind of mpirun, as far as its name and options tell.
enum class MpiKind { unknown, open_mpi, hydra };

enum class LauncherKind {
  deepspeed,
  torchrun,
  accelerate,
  python,   ///< the interpreter itself: one rank
  script,   ///< a .py file: one rank
  unknown,  ///< it can not be seen what it starts
};

struct LauncherChain {
  StarterKind starter = StarterKind::none;
  MpiKind mpi = MpiKind::unknown;
  std::string starter_name;
  GivenOptions starter_options;

  LauncherKind kind = LauncherKind::unknown;
  std::string name;      ///< as written: "torchrun", "run.sh"
  std::size_t word = 0;  ///< of the launcher's first word
  GivenOptions options;  ///< the launcher's; its end is the script
  std::string reason;    ///< of `unknown`
};

LauncherChain read_launcher(const std::vector<std::string>& words);

std::string base_name(const std::string& path);

}  // namespace dstune
