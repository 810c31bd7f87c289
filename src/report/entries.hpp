#pragma once
/// Entries under a path, as they are: no link is followed. Local.

#include <optional>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "dstune/base/json.hpp"

namespace dstune::entries {

/// Nothing where nothing is there.
[[nodiscard]] std::optional<struct stat> status_of(const std::string& path);
[[nodiscard]] bool is_regular(const std::string& path);
[[nodiscard]] bool is_folder(const std::string& path);
/// Nothing where the file can not be read.
[[nodiscard]] std::optional<std::string> content_of(const std::string& path);
/// The hash128() of its content; nothing where the file can not be read. The content is not held.
[[nodiscard]] std::optional<std::string> hash_of(const std::string& path);
/// A member that is a text; empty where there is none.
[[nodiscard]] std::string text_of(const json::Value& object, const char* key);
/// The names in a folder; none where it is no folder. Throws IoError.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

}  // namespace dstune::entries
