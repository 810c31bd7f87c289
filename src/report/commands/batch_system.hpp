#pragma once
/// The words of batch systems. Local.

#include <string>

#include "dstune/report/batch_script.hpp"

namespace dstune {

struct BatchWords {
  const char* name;
  const char* submit;      ///< the command, in front of a script's name
  const char* ending;      ///< of a script's name
  const char* mark;        ///< begins a line that is a directive
  const char* submit_dir;  ///< the folder that the job was submitted from, in a shell's words
};

const BatchWords& words_of(BatchSystem system);

/// The lines of a job's request, each with its end.
std::string request_lines(const BatchResources& resources, BatchSystem system);

/// Rounded up: a rank needs one.
[[nodiscard]] int gpus_per_task(const BatchResources& resources);

/// For a comment or a message: one line, whatever a path holds.
std::string one_line(std::string text);

}  // namespace dstune
