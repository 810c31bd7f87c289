#pragma once
/// The journal: what happened, in order, durable before anything depends on it. One JSON line an
/// event:
/// {"bytes":N,"crc32":"89abcdef","event":{…}}, N and the checksum of the event's own text.
/// Rank 0 is its only writer. Local.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/base/file.hpp"
#include "dstune/base/json.hpp"

namespace dstune {

/// What a journal holds: its events and how many bytes of the file they are.
struct JournalContent {
  struct Event {
    int line;
    json::Value value;
  };
  std::vector<Event> events;
  std::size_t valid_bytes = 0;
};

/// Reads a journal; a missing file is an empty one. A torn tail (the last line cut short) is
/// dropped, any other damage throws InputError with the line.
JournalContent read_journal(const std::string& path);

class Journal {
 public:
  /// Opens for appending behind `keep_bytes`. Throws IoError.
  Journal(const std::string& path, std::size_t keep_bytes);
  /// Adds an event to the next commit.
  void add(const json::Value& event);
  /// Writes and fsyncs what was added, all at once; does nothing where nothing was.
  void commit();

 private:
  AppendFile file_;
  std::string pending_;
};

/// CRC-32 (ISO-HDLC, polynomial 0xEDB88320).
std::uint32_t crc32(std::string_view bytes);

}  // namespace dstune
