#include "entries.hpp"

#include <filesystem>
#include <system_error>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/file_pieces.hpp"
#include "dstune/base/piece_hash.hpp"

namespace dstune::entries {

namespace fs = std::filesystem;

std::optional<struct stat> status_of(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
  return found;
}

bool is_regular(const std::string& path) {
  const auto found = status_of(path);
  return found && S_ISREG(found->st_mode);
}

bool is_folder(const std::string& path) {
  const auto found = status_of(path);
  return found && S_ISDIR(found->st_mode);
}

std::optional<std::string> content_of(const std::string& path) {
  try {
    return read_file(path);
  } catch (const IoError&) {
    return std::nullopt;  // what can not be read can not be known
  }
}

std::optional<std::string> hash_of(const std::string& path) {
  try {
    PieceHash hash;
    read_file_by_pieces(path, [&](std::string_view piece) { hash.add(piece); });
    return hash.text();
  } catch (const IoError&) {
    return std::nullopt;
  }
}

std::string text_of(const json::Value& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code cause;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, cause), end; !cause && at != end; at.increment(cause))
    names.push_back(at->path().filename().string());
  if (cause && cause != std::errc::no_such_file_or_directory && cause != std::errc::not_a_directory)
    throw IoError("can not list " + folder + ": " + cause.message());
  return names;
}

}  // namespace dstune::entries
