#pragma once
/// Ranks of a communicator tell each other texts. Start-up only, blocking.

#include <functional>
#include <string>
#include <vector>

#include "dstune/comm/communicator.hpp"

namespace dstune {

/// Every rank's text, by rank. Collective over the communicator.
[[nodiscard]] std::vector<std::string> gather_texts(const Communicator& world,
                                                    const std::string& mine);

/// Does the work, and returns what it throws on the lowest rank on which it throws; empty where it
/// does on none. Collective over the communicator.
[[nodiscard]] std::string first_violation(const Communicator& world,
                                          const std::function<void()>& work);

}  // namespace dstune
