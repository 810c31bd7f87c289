#pragma once
/// Folders and inputs as the command line and space.json name them, also where neither passes: a
/// job that ends before its results are open says so in exit_status.json, too. Rank 0. Local.

#include "dstune/base/json.hpp"
#include "dstune/report/chosen_folders.hpp"
#include "dstune/tune/job.hpp"

namespace dstune {

/// The folders as the options name them, else space.json as far as it can be read, else by default.
[[nodiscard]] FolderNames asked_folders(const JobOptions& options);

/// Everything that the command line names as input, and every text of space.json that is the path
/// of a file.
[[nodiscard]] InputFiles input_files(const JobOptions& options, const json::Document& space);

}  // namespace dstune
