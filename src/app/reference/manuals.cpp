#include "manuals.hpp"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

std::vector<Manual> manuals(const Release& release) {
  return {{"dstune-mpi.1", program_page(release)},
          {"dstune-space.5", space_page(release)},
          {"dstune-mpi.bash", bash_completion()},
          {"_dstune-mpi", zsh_completion()},
          {"dstune-mpi.fish", fish_completion()}};
}

std::string release_date(const char* source_date_epoch) {
  if (source_date_epoch == nullptr) return "";
  const std::string_view text(source_date_epoch);
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0)
    throw InputError({{.file = "",
                       .pointer = "",
                       .line = 0,
                       .message = "SOURCE_DATE_EPOCH is no number of seconds: unset it"}});
  const auto time = std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
  return format_time(time).substr(0, std::string_view("2026-11-29").size());
}

}  // namespace dstune
