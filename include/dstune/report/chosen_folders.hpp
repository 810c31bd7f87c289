#pragma once
/// The two folders that a job writes in, and what stands in the way there. Rank 0. Local.

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "dstune/report/own_files.hpp"

namespace dstune {

/// The two folders of a job, and whether nobody has named them.
struct FolderNames {
  std::string results_dir;
  std::string exps_dir;
  bool is_results_default = false;
  bool is_exps_default = false;
};

/// Returns those of some names that are experiments whose files are to be written.
using ExperimentsAmong = std::function<std::set<std::string>(const std::set<std::string>& names)>;

/// Chooses the folders that a job takes. A default folder gives way to another name if it holds
/// what is not ours, or an input in the place of a file of ours. A line says so. `experiments` is
/// asked of names that are in the folders, and not where there are none; `is_held`: the lock of the
/// results is this job's. Throws InputError that names what stands in the way. Changes nothing.
[[nodiscard]] FolderNames choose_folders(FolderNames asked, const ExperimentsAmong& experiments,
                                         const InputFiles& inputs, bool is_held = false);
/// The same for a job that ends before it has experiments: the results folder, or nothing where the
/// folder is not ours, and where its exit_status.json can not be.
[[nodiscard]] std::optional<std::string> choose_results_folder(const FolderNames& asked,
                                                               const InputFiles& inputs);
/// Both as they are, with what an earlier release has left in them adopted.
struct BothFolders {
  BothFolders(const std::string& results_dir, const std::string& exps_dir,
              const InputFiles& inputs = {});
  OwnFiles results;
  OwnFiles exps;
};

}  // namespace dstune
