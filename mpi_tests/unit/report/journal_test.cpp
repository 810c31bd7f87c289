#include "dstune/report/journal.hpp"

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "dstune/base/error.hpp"
#include "samples.hpp"

namespace dstune {

namespace {

const json::Value events[] = {{{"kind", "first"}, {"number", 1}},
                              {{"kind", "second"}, {"text", "with \"quotes\", a\nline, é"}},
                              {{"kind", "third"}, {"list", {1.5, 2, nullptr}}}};

std::string written_journal(const std::string& path) {
  Journal journal(path, 0);
  for (const json::Value& event : events) journal.add(event);
  journal.commit();
  return read_file(path);
}

/// The line that the reading of such a journal complains of, 0 where it does not.
int refused_line(const std::string& path, const std::string& bytes) {
  write_file_atomically(path, bytes, Durability::rename_only);
  try {
    read_journal(path);
  } catch (const InputError& error) {
    EXPECT_EQ(error.problems().front().file, path);
    return error.problems().front().line;
  }
  return 0;
}

TEST(Crc32Test, MatchesPublishedVectors) {
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414FA339U);
}

TEST(JournalTest, MissingFileIsEmpty) {
  const test::TemporaryFolder folder;
  const JournalContent content = read_journal(folder / "journal.jsonl");
  EXPECT_TRUE(content.events.empty());
  EXPECT_EQ(content.valid_bytes, 0U);
}

TEST(JournalTest, UnreadableFileIsAnError) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(read_journal(folder.path()), IoError);
}

TEST(JournalTest, ReadsBackWhatWasWritten) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  const std::string bytes = written_journal(path);
  const JournalContent content = read_journal(path);
  ASSERT_EQ(content.events.size(), std::size(events));
  for (std::size_t i = 0; i < std::size(events); ++i) {
    EXPECT_EQ(content.events[i].value, events[i]);
    EXPECT_EQ(content.events[i].line, static_cast<int>(i) + 1);
  }
  EXPECT_EQ(content.valid_bytes, bytes.size());
}

TEST(JournalTest, LineHasTheDocumentedForm) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  Journal journal(path, 0);
  journal.add({{"kind", "x"}});
  journal.commit();
  EXPECT_EQ(read_file(path), "{\"bytes\":12,\"crc32\":\"eb88d662\",\"event\":{\"kind\":\"x\"}}\n");
}

TEST(JournalTest, NothingIsWrittenBeforeTheCommit) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  Journal journal(path, 0);
  journal.add(events[0]);
  EXPECT_EQ(read_file(path), "");
  journal.commit();
  const std::string once = read_file(path);
  EXPECT_NE(once, "");
  journal.commit();
  EXPECT_EQ(read_file(path), once);
}

TEST(JournalTest, TornTailIsDroppedAtEveryByteAndWrittenOver) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  const std::string bytes = written_journal(path);
  const std::size_t two_lines = bytes.find('\n', bytes.find('\n') + 1) + 1;
  for (std::size_t cut = two_lines; cut < bytes.size(); ++cut) {
    write_file_atomically(path, bytes.substr(0, cut), Durability::rename_only);
    const JournalContent content = read_journal(path);
    ASSERT_EQ(content.events.size(), 2U) << "cut at " << cut;
    ASSERT_EQ(content.valid_bytes, two_lines);
    Journal journal(path, content.valid_bytes);
    journal.add(events[2]);
    journal.commit();
    ASSERT_EQ(read_file(path), bytes) << "cut at " << cut;
  }
}

TEST(JournalTest, FlippedByteIsRefusedWithItsLine) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  const std::string bytes = written_journal(path);
  int line = 1;
  // The very last byte is the line end, whose loss is a torn tail.
  for (std::size_t at = 0; at + 1 < bytes.size(); ++at) {
    for (const int bit : {0, 3, 5}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      ASSERT_EQ(refused_line(path, flipped), line) << "byte " << at << ", bit " << bit;
    }
    if (bytes[at] == '\n') ++line;
  }
}

TEST(JournalTest, EveryOtherDamageIsRefusedWithItsLine) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  const std::string bytes = written_journal(path);
  const std::size_t second = bytes.find('\n') + 1;
  const std::string good = "{\"bytes\":12,\"crc32\":\"eb88d662\",\"event\":{\"kind\":\"x\"}}\n";
  ASSERT_EQ(refused_line(path, good), 0);
  EXPECT_EQ(refused_line(path, std::string(bytes).erase(second - 1, 1)), 1) << "no line end";
  EXPECT_EQ(refused_line(path, std::string(bytes).insert(second, "\n")), 2) << "empty line";
  EXPECT_EQ(refused_line(path, bytes + "hello\n"), 4) << "not JSON";
  EXPECT_EQ(refused_line(path, bytes + "{}\n"), 4) << "no event";
  EXPECT_EQ(refused_line(path, std::string(good).replace(9, 2, "13")), 1) << "wrong length";
  EXPECT_EQ(refused_line(path, std::string(good).replace(21, 8, "eb88d663")), 1)
      << "wrong checksum";
  EXPECT_EQ(refused_line(path, std::string(good).replace(1, 0, " ")), 1) << "another form";
  EXPECT_EQ(refused_line(path, bytes.substr(0, second - 2) + "\n"), 1) << "cut short";
}

TEST(JournalTest, ThePrintedCommandCutsTheDamageOff) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "it's a journal.jsonl";
  const std::string bytes = written_journal(path);
  const std::size_t second = bytes.find('\n') + 1;
  ASSERT_EQ(refused_line(path, std::string(bytes).insert(second, "damage\n")), 2);
  std::string message;
  try {
    (void)read_journal(path);
  } catch (const InputError& error) {
    message = error.problems().front().message;
  }
  const std::size_t at = message.find("head -n 1 ");
  ASSERT_NE(at, std::string::npos) << message;
  ASSERT_EQ(std::system(message.substr(at).c_str()), 0) << message;
  EXPECT_EQ(read_file(path), bytes.substr(0, second));
  EXPECT_EQ(read_journal(path).events.size(), 1U);
}

TEST(JournalTest, GarbageWithARightChecksumIsRefused) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32("{oops}"));
  const std::string line =
      std::string("{\"bytes\":6,\"crc32\":\"") + checksum + "\",\"event\":{oops}}\n";
  EXPECT_EQ(refused_line(path, line), 1);
}

TEST(JournalTest, UnwritableFolderIsAnError) {
  EXPECT_THROW(Journal("/proc/nowhere/journal.jsonl", 0), IoError);
}

/// Files can not grow beyond so many bytes, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_before_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limited{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_before_)(int) = nullptr;
};

TEST(JournalTest, FullDiskLeavesWhatWasCommittedAndEndsTheWriting) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  Journal journal(path, 0);
  journal.add(events[0]);
  journal.commit();
  const std::string committed = read_file(path);
  journal.add(events[1]);
  {
    const FileSizeLimit limit(committed.size() + 10);
    EXPECT_THROW(journal.commit(), IoError);
  }
  EXPECT_THROW(journal.commit(), IoError) << "what follows a failed write could not be read";
  EXPECT_EQ(read_journal(path).events.size(), 1U);
}

TEST(JournalTest, WhatBecameAnotherFileIsLeftAlone) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  Journal journal(path, 0);
  journal.add(events[0]);
  journal.commit();
  write_file_atomically(path, "another job's\n");
  journal.add(events[1]);
  EXPECT_THROW(journal.commit(), IoError);
  EXPECT_EQ(read_file(path), "another job's\n");
  EXPECT_THROW(journal.commit(), IoError) << "for ever";
}

TEST(JournalTest, IsNotWrittenWhereTheJobMustNot) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "journal.jsonl";
  Journal journal(path, 0, [] { throw IoError("another job has it"); });
  journal.add(events[0]);
  EXPECT_THROW(journal.commit(), IoError);
  EXPECT_EQ(read_file(path), "");
}

TEST(JournalTest, IsNotWrittenThroughALink) {
  const test::TemporaryFolder folder;
  std::filesystem::create_symlink(folder / "elsewhere", folder / "journal.jsonl");
  EXPECT_THROW(Journal(folder / "journal.jsonl", 0), IoError);
  EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere"));
}

}  // namespace

}  // namespace dstune
