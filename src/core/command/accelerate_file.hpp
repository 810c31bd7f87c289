#pragma once
/// The file from which `accelerate launch` takes what its command does not say. Local.

#include <string>

#include "command/launch_options.hpp"
#include "dstune/base/json.hpp"

namespace dstune {

struct AccelerateFile {
  std::string path;         ///< empty: there is none
  bool is_default = false;  ///< the one that is read where the command names none
  json::Value values = json::Value::object();
  std::string problem;  ///< why it can not be read
};

/// The file that the options name, else the default one, where it is there. `folder`: where the
/// command runs.
AccelerateFile accelerate_file(const GivenOptions& options, const std::string& folder);
/// The default one, whether or not it is there: below HF_HOME, XDG_CACHE_HOME or HOME.
std::string default_accelerate_file();

}  // namespace dstune
