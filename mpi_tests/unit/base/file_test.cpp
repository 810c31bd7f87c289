#include "dstune/base/file.hpp"

#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "folder_test.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FileTest : public test::FolderTest {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
};

/// No file grows beyond `bytes` while this lives: a disk that is full, without one.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limited = old_;
    limited.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

std::string io_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const IoError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(FileTest, WritesAndReadsBack) {
  const std::string content("a\0b\n", 4);
  write_file_atomically(path("f"), content);
  EXPECT_EQ(read_file(path("f")), content);
  write_file_atomically(path("f"), "", Durability::rename_only);
  EXPECT_EQ(read_file(path("f")), "");
  write_file_atomically(path("f"), std::string(1 << 20, 'x'));
  EXPECT_EQ(read_file(path("f")).size(), 1U << 20);
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, AFullDiskKeepsTheOldFileAndLeavesNoTemporary) {
  write_file_atomically(path("f"), "old");
  const FileSizeLimit limit(4096);
  const std::string what =
      io_error([&] { write_file_atomically(path("f"), std::string(9000, 'x')); });
  EXPECT_THAT(what, HasSubstr(path("f")));
  EXPECT_THAT(what, HasSubstr("File too large"));
  EXPECT_EQ(read_file(path("f")), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, APathUnderAFileIsAnError) {
  write_file_atomically(path("f"), "old");
  const std::string below = path("f") + "/below";
  EXPECT_THAT(io_error([&] { write_file_atomically(below, "x"); }),
              testing::AllOf(HasSubstr(below), HasSubstr("Not a directory")));
  EXPECT_THAT(io_error([&] { create_folders(below); }), HasSubstr("Not a directory"));
  EXPECT_THAT(io_error([&] { (void)read_file(below); }), HasSubstr("Not a directory"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, AFolderInTheWayKeepsItAndLeavesNoTemporary) {
  create_folders(path("taken/inside"));
  EXPECT_THAT(io_error([&] { write_file_atomically(path("taken"), "x"); }), HasSubstr("directory"));
  EXPECT_TRUE(fs::is_directory(path("taken/inside")));
  EXPECT_EQ(entries(), 1);
  EXPECT_THAT(io_error([&] { (void)read_file(path("taken")); }), HasSubstr("directory"));
}

TEST_F(FileTest, AMissingFolderOrFileIsNamed) {
  EXPECT_THAT(io_error([&] { write_file_atomically(path("no/f"), "x"); }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(io_error([&] { (void)read_file(path("no")); }), HasSubstr(path("no")));
}

TEST_F(FileTest, StaleTemporariesOfADeadProcessAreNoObstacle) {
  for (int i = 0; i < 2000; ++i)
    ::close(::creat(
        path(".dstune-" + std::to_string(::getpid()) + "-" + std::to_string(i) + ".tmp").c_str(),
        0600));
  write_file_atomically(path("f"), "new");
  EXPECT_EQ(read_file(path("f")), "new");
  EXPECT_EQ(entries(), 2001);
}

TEST_F(FileTest, CreatesFoldersWithTheirParents) {
  create_folders(path("a/b/c"));
  create_folders(path("a/b/c"));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
}

TEST_F(FileTest, AppendsAndCutsTornTails) {
  {
    AppendFile file(path("j"), 0);
    file.append("one\n");
    file.append("tw");
    file.sync();
  }
  AppendFile again(path("j"), 4);
  EXPECT_EQ(read_file(path("j")), "one\n");
  again.append("two\n");
  EXPECT_EQ(read_file(path("j")), "one\ntwo\n");
  EXPECT_THAT(io_error([&] { AppendFile(path("j"), 100); }), HasSubstr("8 bytes of the 100"));
}

TEST_F(FileTest, AnAppendThatDoesNotFitLeavesNothing) {
  AppendFile file(path("j"), 0);
  file.append("one\n");
  {
    const FileSizeLimit limit(4096);
    EXPECT_THAT(io_error([&] { file.append(std::string(9000, 'x')); }),
                HasSubstr("File too large"));
  }
  file.append("two\n");
  EXPECT_EQ(read_file(path("j")), "one\ntwo\n");
}

TEST_F(FileTest, WhatIsNoFileIsRefusedAtOnceAndStays) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(io_error([&] { write_file_atomically(path("fifo"), "x"); }),
              HasSubstr("it is a fifo; name a regular file"));
  EXPECT_NE(io_error([&] { AppendFile(path("fifo"), 0); }), "no error");
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
  for (const std::string& place : {path("fifo"), std::string("/dev/zero")})
    EXPECT_THAT(io_error([&] { (void)read_file(place); }), HasSubstr("name a regular file"));
  // Nothing here tries to write a device: a test that fails would replace it.
  EXPECT_THAT(io_error([&] { check_output_file("/dev/null"); }), HasSubstr("it is a device"));
  EXPECT_THAT(io_error([&] { AppendFile("/dev/full", 0); }), HasSubstr("it is a device"));
  check_output_file(path("nothing yet"));
}

TEST_F(FileTest, ALargerFileThanAskedForIsNotRead) {
  write_file_atomically(path("f"), std::string(1001, 'x'));
  EXPECT_EQ(read_file(path("f"), 1001).size(), 1001U);
  EXPECT_THAT(io_error([&] { (void)read_file(path("f"), 1000); }),
              testing::AllOf(HasSubstr(path("f")), HasSubstr("larger than 1000 B")));
}

TEST_F(FileTest, ALinkIsReplacedAndNothingIsWrittenThroughIt) {
  write_file_atomically(path("other"), "mine");
  fs::create_symlink(path("other"), path("link"));
  EXPECT_THAT(io_error([&] { AppendFile(path("link"), 0); }), HasSubstr("it is a symbolic link"));
  write_file_atomically(path("link"), "new");
  EXPECT_EQ(read_file(path("link")), "new");
  EXPECT_EQ(read_file(path("other")), "mine");
}

TEST_F(FileTest, AGrowingFileNoticesWhatBecomesOfIt) {
  AppendFile file(path("j"), 0);
  file.append("one\ntwo\n");
  file.check();
  fs::rename(path("j"), path("moved"));
  EXPECT_THAT(io_error([&] { file.check(); }), HasSubstr("was removed"));
  write_file_atomically(path("j"), "one\ntwo\n");
  EXPECT_THAT(io_error([&] { file.check(); }), HasSubstr("was replaced"));
  fs::rename(path("moved"), path("j"));
  file.check();
  fs::resize_file(path("j"), 4);
  EXPECT_THAT(io_error([&] { file.check(); }), HasSubstr("has 4 bytes instead of 8"));
}

TEST(UniqueHandleTest, ClosesOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  FileDescriptor reader(ends[0]);
  {
    FileDescriptor writer(ends[1]);
    FileDescriptor moved = std::move(writer);
    EXPECT_TRUE(moved);
    EXPECT_EQ(moved.value(), ends[1]);
  }
  char byte = 0;
  EXPECT_EQ(::read(reader.value(), &byte, 1), 0) << "the writing end is still open";
  const int given_away = reader.release();
  EXPECT_FALSE(reader);
  EXPECT_EQ(::close(given_away), 0);
}

}  // namespace
}  // namespace dstune
