#pragma once
/// Messages between processes as files of the folder where they meet: written once, whole, and read
/// by whoever waits for them.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dstune::emulated {

using Message = std::vector<std::byte>;

/// Without a folder a process posts to itself alone. By any thread; so are all of these.
void post(const std::string& name, Message message);
/// Nothing before it is posted.
std::optional<Message> read_post(const std::string& name);
void remove_post(const std::string& name);

}  // namespace dstune::emulated
