#pragma once
/// The files that a job leaves, in words, for manuals. Local.

#include <string>
#include <vector>

namespace dstune {

struct ResultFile {
  std::string path;  ///< in the results folder; NAME stands for an experiment's
  std::string help;  ///< a sentence without its full stop
};

/// Every file of the results folder, those that people read first.
[[nodiscard]] std::vector<ResultFile> result_files();

}  // namespace dstune
