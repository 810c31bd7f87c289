#include "dstune/report/journal.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/hash.hpp"
#include "dstune/report/own_files.hpp"
#include "parts.hpp"

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

/// Says, for a message, why a line is not one that was written here.
std::string damage(std::string_view line) {
  if (line.empty()) return "the line is empty";
  const json::Value value = json::Value::parse(line, nullptr, false);
  if (value.is_discarded()) return "the line is not JSON";
  return "length or checksum do not match the event";
}

/// Quotes a word so that a shell takes it for one.
std::string one_word(const std::string& word) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("./_-+=").find(c) != std::string_view::npos;
  };
  if (std::ranges::all_of(word, is_plain)) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

InputError damaged(const std::string& path, int line, const std::string& what) {
  std::string cut;
  if (line > 1) {
    const std::string whole = one_word(path), part = one_word(path + ".cut");
    cut = fmt::format(
        ", or keep what stands before this line, by the command: head -n {} {} > {} && mv {} {}",
        line - 1, whole, part, part, whole);
  }
  return InputError({{path, "", line,
                      fmt::format("the journal is damaged: {}; restore the file, or start over "
                                  "with --overwrite or another --results-dir{}",
                                  what, cut)}});
}

void append_text(std::string& out, const std::string& text) {
  // The length in front keeps "a","b" and "a,b" apart whatever the text holds.
  out += fmt::format("s{}:", text.size());
  out += text;
}

/// 5e8 and 500000000 are the same number, and so are -0.0 and 0.
void append_float(std::string& out, double number) {
  if (std::trunc(number) == number && number >= -0x1p63 && number < 0x1p63)
    out += fmt::format("n{}", static_cast<std::int64_t>(number));
  else if (std::trunc(number) == number && number > 0 && number < 0x1p64)
    out += fmt::format("n{}", static_cast<std::uint64_t>(number));
  else
    out += fmt::format("n{:.17g}", number);
}

void append_canonical(std::string& out, const json::Value& value) {
  if (value.is_object()) {
    std::vector<std::pair<const std::string*, const json::Value*>> members;
    for (const auto& member : value.items()) members.emplace_back(&member.key(), &member.value());
    std::sort(members.begin(), members.end(),
              [](const auto& a, const auto& b) { return *a.first < *b.first; });
    out += fmt::format("o{}{{", members.size());
    for (const auto& [key, member] : members) {
      append_text(out, *key);
      append_canonical(out, *member);
    }
    out += '}';
  } else if (value.is_array()) {
    out += fmt::format("a{}[", value.size());
    for (const json::Value& element : value) append_canonical(out, element);
    out += ']';
  } else if (value.is_string()) {
    append_text(out, value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    append_float(out, value.get<double>());
  } else if (value.is_number()) {
    out += "n" + value.dump();
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? 't' : 'f';
  } else {
    out += '0';
  }
}

}  // namespace

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t remainder = 0xFFFFFFFF;
  for (const char byte : bytes)
    remainder =
        (remainder >> 8) ^ crc32_table[(remainder ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~remainder;
}

bool is_journal_line(std::string_view line) {
  return event_text(line).has_value();
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

namespace {

const std::string& with_one_name(const std::string& path, std::size_t keep_bytes) {
  // `cp -al` makes copies that are links: they keep what they have.
  part_from_other_names(path, keep_bytes);
  return path;
}

}  // namespace

Journal::Journal(const std::string& path, std::size_t keep_bytes, std::function<void()> check)
    : path_(path), file_(with_one_name(path, keep_bytes), keep_bytes), check_(std::move(check)) {}

void Journal::add(const json::Value& event) {
  pending_ += journal_line(json_text(event));
}

void Journal::begin_records(const PlannedExperiment& first, const json::Value& last_base) {
  base_ = event::base(first);
  // Their texts: equal numbers may be written otherwise.
  if (json_text(base_) != json_text(last_base)) add(base_);
}

void Journal::add_finished(const std::string& key, const Record& record) {
  add(base_.is_null() ? event::finished(key, record) : event::finished(key, record, base_));
}

void Journal::commit() {
  if (pending_.empty()) return;
  // After a write or sync that failed nobody knows what is on the disk; another line behind it
  // could turn a torn tail into damage.
  if (has_failed_) throw IoError("can not write " + path_ + ": an earlier write to it failed");
  has_failed_ = true;
  check();
  file_.append(pending_);
  file_.sync();
  has_failed_ = false;
  pending_.clear();
}

void Journal::check() const {
  if (check_) check_();
  file_.check();
}

std::string record_key(const json::Value& identity) {
  std::string canonical;
  append_canonical(canonical, identity);
  return hash128(canonical);
}

ListKey::ListKey(std::size_t size) {
  hash_.add(fmt::format("a{}[", size));
}

void ListKey::add(const json::Value& element) {
  std::string canonical;
  append_canonical(canonical, element);
  hash_.add(canonical);
}

std::string ListKey::text() {
  hash_.add("]");
  return hash_.text();
}

}  // namespace dstune
