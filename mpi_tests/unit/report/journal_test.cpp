#include "dstune/report/journal.hpp"

#include <cstdlib>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "results_folder.hpp"

namespace dstune {
namespace {

const json::Value events[] = {{{"kind", "first"}, {"number", 1}},
                              {{"kind", "second"}, {"text", "with \"quotes\", a\nline, é"}},
                              {{"kind", "third"}, {"list", {1.5, 2, nullptr}}}};

class JournalTest : public test::FolderTest {
 protected:
  /// The bytes of a journal with these events.
  [[nodiscard]] std::string written_journal() const {
    Journal journal(path_, 0);
    for (const json::Value& event : events) journal.add(event);
    journal.commit();
    return read_file(path_);
  }
  /// The line that the reading of such a journal complains of, 0 where it does not.
  [[nodiscard]] int refused_line(const std::string& bytes) const {
    write_file_atomically(path_, bytes, Durability::rename_only);
    try {
      read_journal(path_);
    } catch (const InputError& error) {
      EXPECT_EQ(error.problems().front().file, path_);
      return error.problems().front().line;
    }
    return 0;
  }

  std::string path_ = folder_ / "journal.jsonl";
};

TEST(Crc32Test, MatchesPublishedVectors) {
  EXPECT_EQ(crc32(""), 0U);
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414FA339U);
}

TEST_F(JournalTest, MissingFileIsEmptyAndAnUnreadableOneAnError) {
  const JournalContent content = read_journal(path_);
  EXPECT_TRUE(content.events.empty());
  EXPECT_EQ(content.valid_bytes, 0U);
  EXPECT_THROW(read_journal(folder_.string()), IoError);
  EXPECT_THROW(Journal("/proc/nowhere/journal.jsonl", 0), IoError);
}

TEST_F(JournalTest, ReadsBackWhatWasWritten) {
  const std::string bytes = written_journal();
  const JournalContent content = read_journal(path_);
  ASSERT_EQ(content.events.size(), std::size(events));
  for (std::size_t i = 0; i < std::size(events); ++i) {
    EXPECT_EQ(content.events[i].value, events[i]);
    EXPECT_EQ(content.events[i].line, static_cast<int>(i) + 1);
  }
  EXPECT_EQ(content.valid_bytes, bytes.size());
}

TEST_F(JournalTest, LineHasTheDocumentedForm) {
  Journal journal(path_, 0);
  journal.add({{"kind", "x"}});
  journal.commit();
  EXPECT_EQ(read_file(path_), "{\"bytes\":12,\"crc32\":\"eb88d662\",\"event\":{\"kind\":\"x\"}}\n");
}

TEST_F(JournalTest, NothingIsWrittenBeforeTheCommit) {
  Journal journal(path_, 0);
  journal.add(events[0]);
  EXPECT_EQ(read_file(path_), "");
  journal.commit();
  const std::string once = read_file(path_);
  EXPECT_NE(once, "");
  journal.commit();
  EXPECT_EQ(read_file(path_), once);
}

TEST_F(JournalTest, TornTailIsDroppedAtEveryByteAndWrittenOver) {
  const std::string bytes = written_journal();
  const std::size_t two_lines = bytes.find('\n', bytes.find('\n') + 1) + 1;
  for (std::size_t cut = two_lines; cut < bytes.size(); ++cut) {
    write_file_atomically(path_, bytes.substr(0, cut), Durability::rename_only);
    const JournalContent content = read_journal(path_);
    ASSERT_EQ(content.events.size(), 2U) << "cut at " << cut;
    ASSERT_EQ(content.valid_bytes, two_lines);
    Journal journal(path_, content.valid_bytes);
    journal.add(events[2]);
    journal.commit();
    ASSERT_EQ(read_file(path_), bytes) << "cut at " << cut;
  }
}

TEST_F(JournalTest, FlippedByteIsRefusedWithItsLine) {
  const std::string bytes = written_journal();
  int line = 1;
  // The very last byte is the line end, whose loss is a torn tail.
  for (std::size_t at = 0; at + 1 < bytes.size(); ++at) {
    for (const int bit : {0, 3, 5}) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      ASSERT_EQ(refused_line(flipped), line) << "byte " << at << ", bit " << bit;
    }
    if (bytes[at] == '\n') ++line;
  }
}

TEST_F(JournalTest, EveryOtherDamageIsRefusedWithItsLine) {
  const std::string bytes = written_journal();
  const std::size_t second = bytes.find('\n') + 1;
  const std::string good = "{\"bytes\":12,\"crc32\":\"eb88d662\",\"event\":{\"kind\":\"x\"}}\n";
  ASSERT_EQ(refused_line(good), 0);
  EXPECT_EQ(refused_line(std::string(bytes).erase(second - 1, 1)), 1) << "no line end";
  EXPECT_EQ(refused_line(std::string(bytes).insert(second, "\n")), 2) << "empty line";
  EXPECT_EQ(refused_line(bytes + "hello\n"), 4) << "not JSON";
  EXPECT_EQ(refused_line(bytes + "{}\n"), 4) << "no event";
  EXPECT_EQ(refused_line(std::string(good).replace(9, 2, "13")), 1) << "wrong length";
  EXPECT_EQ(refused_line(std::string(good).replace(21, 8, "eb88d663")), 1) << "wrong checksum";
  EXPECT_EQ(refused_line(std::string(good).replace(1, 0, " ")), 1) << "another form";
  EXPECT_EQ(refused_line(bytes.substr(0, second - 2) + "\n"), 1) << "cut short";
  const std::string garbage = fmt::format("{:08x}", crc32("{oops}"));
  EXPECT_EQ(refused_line("{\"bytes\":6,\"crc32\":\"" + garbage + "\",\"event\":{oops}}\n"), 1)
      << "no JSON, with a right checksum";
}

TEST_F(JournalTest, ThePrintedCommandCutsTheDamageOff) {
  path_ = folder_ / "it's a journal.jsonl";
  const std::string bytes = written_journal();
  const std::size_t second = bytes.find('\n') + 1;
  ASSERT_EQ(refused_line(std::string(bytes).insert(second, "damage\n")), 2);
  std::string message;
  try {
    (void)read_journal(path_);
  } catch (const InputError& error) {
    message = error.problems().front().message;
  }
  const std::size_t at = message.find("head -n 1 ");
  ASSERT_NE(at, std::string::npos) << message;
  ASSERT_EQ(std::system(message.substr(at).c_str()), 0) << message;
  EXPECT_EQ(read_file(path_), bytes.substr(0, second));
  EXPECT_EQ(read_journal(path_).events.size(), 1U);
}

TEST_F(JournalTest, FullDiskLeavesWhatWasCommittedAndEndsTheWriting) {
  Journal journal(path_, 0);
  journal.add(events[0]);
  journal.commit();
  const std::string committed = read_file(path_);
  journal.add(events[1]);
  {
    const FileSizeLimit limit(committed.size() + 10);
    EXPECT_THROW(journal.commit(), IoError);
  }
  EXPECT_THROW(journal.commit(), IoError) << "what follows a failed write could not be read";
  EXPECT_EQ(read_journal(path_).events.size(), 1U);
}

TEST_F(JournalTest, WhatBecameAnotherFileIsLeftAlone) {
  Journal journal(path_, 0);
  journal.add(events[0]);
  journal.commit();
  write_file_atomically(path_, "another job's\n");
  journal.add(events[1]);
  EXPECT_THROW(journal.commit(), IoError);
  EXPECT_EQ(read_file(path_), "another job's\n");
  EXPECT_THROW(journal.commit(), IoError) << "for ever";
}

TEST_F(JournalTest, IsNotWrittenWhereTheJobMustNot) {
  Journal journal(path_, 0, [] { throw IoError("another job has it"); });
  journal.add(events[0]);
  EXPECT_THROW(journal.commit(), IoError);
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(JournalTest, IsNotWrittenThroughALink) {
  std::filesystem::create_symlink(folder_ / "elsewhere", path_);
  EXPECT_THROW(Journal(path_, 0), IoError);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
}

}  // namespace
}  // namespace dstune
