#include "dstune/report/journal.hpp"

#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

constexpr std::array<std::uint32_t, 256> make_crc32_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder & 1) != 0 ? (remainder >> 1) ^ 0xEDB88320 : remainder >> 1;
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> crc32_table = make_crc32_table();

std::string journal_line(std::string_view event_text) {
  return fmt::format("{{\"bytes\":{},\"crc32\":\"{:08x}\",\"event\":{}}}\n", event_text.size(),
                     crc32(event_text), event_text);
}

/// The event's text in a line, or nothing: the line must be the very one that is written for it.
std::optional<std::string_view> event_text(std::string_view line) {
  constexpr std::string_view middle = "\"event\":";
  const std::size_t at = line.find(middle);
  if (at == std::string_view::npos || !line.ends_with('}')) return std::nullopt;
  std::string_view text = line.substr(at + middle.size());
  text.remove_suffix(1);
  const std::string expected = journal_line(text);
  if (std::string_view(expected).substr(0, expected.size() - 1) != line) return std::nullopt;
  return text;
}

/// Why a line is none that was written here: for the message.
std::string damage(std::string_view line) {
  if (line.empty()) return "the line is empty";
  const json::Value value = json::Value::parse(line, nullptr, false);
  if (value.is_discarded()) return "the line is not JSON";
  return "length or checksum do not match the event";
}

InputError damaged(const std::string& path, int line, const std::string& what) {
  return InputError({{path, "", line,
                      "the journal is damaged: " + what +
                          "; restore the file, cut it before this line, or start over with "
                          "--overwrite or another --results-dir"}});
}

}  // namespace

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t remainder = 0xFFFFFFFF;
  for (const char byte : bytes)
    remainder =
        (remainder >> 8) ^ crc32_table[(remainder ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~remainder;
}

JournalContent read_journal(const std::string& path) {
  JournalContent content;
  std::error_code cause;
  if (!std::filesystem::exists(path, cause) && !cause) return content;
  const std::string bytes = read_file(path);
  std::string_view rest = bytes;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    // Every write ends with a line's end, so what has none was cut short.
    if (end == std::string_view::npos) break;
    const std::string_view line = rest.substr(0, end);
    const std::optional<std::string_view> text = event_text(line);
    if (!text) throw damaged(path, number, damage(line));
    json::Value value = json::Value::parse(*text, nullptr, false);
    if (value.is_discarded()) throw damaged(path, number, "the event is not JSON");
    content.events.push_back({number, std::move(value)});
    rest.remove_prefix(end + 1);
    content.valid_bytes += end + 1;
  }
  return content;
}

Journal::Journal(const std::string& path, std::size_t keep_bytes)
    : path_(path), file_(path, keep_bytes) {}

void Journal::add(const json::Value& event) {
  pending_ += journal_line(event.dump(-1, ' ', false, json::Value::error_handler_t::replace));
}

void Journal::commit() {
  if (pending_.empty()) return;
  // After a write or sync that failed nobody knows what is on the disk; another line behind it
  // could turn a torn tail into damage.
  if (has_failed_) throw IoError("can not write " + path_ + ": an earlier write to it failed");
  has_failed_ = true;
  file_.append(pending_);
  file_.sync();
  has_failed_ = false;
  pending_.clear();
}

}  // namespace dstune
