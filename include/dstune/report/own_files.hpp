#pragma once
/// The program's own files in a folder. Nothing else in it is replaced, cut or deleted, under any
/// name. The folder's manifest has a line for each file, added before the file gets its name. A
/// file is ours if some line of the manifest has the hash of its content. Rank 0. Local.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "dstune/base/file.hpp"
#include "dstune/base/file_pieces.hpp"
#include "dstune/base/piece_hash.hpp"

namespace dstune {

/// Files that the user has named as input: they are never written and never deleted, wherever they
/// lie and whatever they hold.
class InputFiles {
 public:
  /// A file, or all files below a folder; what is not there is none.
  void add(const std::string& path);
  [[nodiscard]] bool contains(const std::string& path) const;

 private:
  std::set<std::pair<dev_t, ino_t>> files_;
};

class OwnFiles {
 public:
  /// Reads the manifest, if there is one. Changes nothing.
  explicit OwnFiles(std::string folder, InputFiles inputs = {});

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path(std::string_view file) const;

  // All names are relative to the folder: "optimal.json", "z0_gas1_tmbspg1/metrics.json".

  /// It has a manifest of ours.
  [[nodiscard]] bool has_manifest() const { return has_manifest_; }
  /// A manifest of ours, or something that was adopted.
  [[nodiscard]] bool is_ours() const { return has_manifest_ || !adopted_.empty(); }
  /// Tells whether the file is a regular one, no input, and ours by the manifest or by its own
  /// mark.
  [[nodiscard]] bool is_own(const std::string& file) const;
  /// Tells why the place of a file of ours is taken; empty if it is free or holds ours. `hash`: of
  /// a content, which is in nobody's way where it is there already.
  [[nodiscard]] std::string obstacle(const std::string& file,
                                     const std::optional<std::string>& hash = {}) const;
  /// A folder of an earlier release has no manifest: takes the file, or the folder, for ours.
  void adopt(const std::string& file);
  void adopt_folder(const std::string& name);
  /// Names of folders that are ours.
  [[nodiscard]] std::set<std::string> folders() const;
  [[nodiscard]] std::set<std::string> files() const;
  /// Nothing but the manifest is there.
  [[nodiscard]] bool is_empty() const;
  [[nodiscard]] bool owns_folder(const std::string& name) const;

  // The folder's lock is held. All throw IoError.

  /// The manifest is written from here on; what was adopted is in it. Any number of times.
  void begin();
  /// Atomically. Throws where something that is not ours has the place.
  void write(const std::string& file, std::string_view content, Durability durability,
             Readers readers = Readers::by_umask);
  /// Notes that a file which only grows will be ours; its lines are its mark.
  void note_appended(const std::string& file);
  /// Makes the folder where it is missing. Throws where something else has the place.
  void make_folder(const std::string& name);
  /// Deletes the file, or the folder if it is empty, where it is ours.
  void remove(const std::string& file);
  void remove_folder(const std::string& name);
  /// Once all is deleted that it names.
  void remove_manifest();

 private:
  friend class OwnFilePieces;
  struct Line {
    std::string file, folder, appended, hash;
  };
  [[nodiscard]] std::string manifest_path() const;
  [[nodiscard]] std::vector<Line> lines() const;
  void look_for_manifest();
  void read_manifest();
  [[nodiscard]] std::string obstacle_now(const std::string& file, const std::string& hash);
  [[nodiscard]] bool claims(const std::string& file, const std::string& hash,
                            Durability durability);
  [[nodiscard]] bool knows(const std::string& kind, const std::string& name,
                           const std::string& hash) const;
  void know(const std::string& kind, const std::string& name, const std::string& hash);
  void add(const std::string& line, Durability durability);
  void append(std::string_view text);

  std::string folder_;
  InputFiles inputs_;
  bool has_manifest_ = false;
  mutable std::mutex mutex_;  ///< of what follows: files are written by two threads
  std::unordered_set<std::uint64_t> known_;
  std::vector<std::string> adopted_;  ///< lines that the manifest lacks
  FileDescriptor manifest_;
};

/// A file of ours that is written piece by piece, and takes its place at the end.
class OwnFilePieces {
 public:
  /// `files` outlives it.
  OwnFilePieces(OwnFiles& files, std::string file);

  void add(std::string_view piece);
  /// As OwnFiles::write().
  void take_place(Durability durability);

 private:
  OwnFiles& files_;
  std::string file_;
  PieceHash hash_;
  AtomicFile out_;
};

/// Gives a file that has other names a copy of its own, of its first `keep_bytes`; the others keep
/// what they have. Throws IoError.
void part_from_other_names(const std::string& path, std::size_t keep_bytes);

}  // namespace dstune
