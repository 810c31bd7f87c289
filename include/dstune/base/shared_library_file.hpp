#pragma once
/// What the file of a shared library says of itself, before anything of it is loaded or run. Reads
/// the same tables as the dynamic linker (ELF: the dynamic section, its symbol and hash tables;
/// System V ABI, generic part, chapter 5). All functions: Local.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dstune {

class SharedLibraryFile {
 public:
  /// A symbol that the library itself defines for others.
  struct Symbol {
    bool is_function = false;
    std::uint64_t address = 0;
    std::uint64_t size_bytes = 0;
  };

  /// Throws Error saying what it is instead where the content is no shared library, is damaged, or
  /// is for another kind of machine than this process; IoError where it can not be read.
  explicit SharedLibraryFile(const std::string& path);
  /// The same for a file's content; `path` is for messages.
  SharedLibraryFile(std::string content, const std::string& path);

  [[nodiscard]] std::optional<Symbol> find(const std::string& name) const;
  /// The first bytes of a symbol as they are in the file; nothing where the file holds fewer.
  [[nodiscard]] std::optional<std::string> content_of(const Symbol& symbol,
                                                      std::uint64_t bytes) const;
  /// The whole file.
  [[nodiscard]] const std::string& content() const { return content_; }

 private:
  struct Segment {
    std::uint64_t address;
    std::uint64_t offset;
    std::uint64_t file_bytes;
  };
  struct NamedSymbol {
    std::string name;
    Symbol symbol;
  };

  void read_segments();
  void read_symbols();
  [[nodiscard]] std::uint64_t count_symbols(std::uint64_t hash, std::uint64_t gnu_hash) const;
  [[nodiscard]] std::string text_at(std::uint64_t address) const;
  /// A structure at a place in the file, or at an address of the loaded library. Throw Error.
  template <class T>
  [[nodiscard]] T at_offset(std::uint64_t offset) const;
  template <class T>
  [[nodiscard]] T at_address(std::uint64_t address) const;
  [[nodiscard]] std::optional<std::uint64_t> offset_of(std::uint64_t address,
                                                       std::uint64_t bytes) const;
  [[noreturn]] void refuse(const std::string& why) const;

  std::string path_;
  std::string content_;
  std::vector<Segment> segments_;
  std::uint64_t dynamic_offset_ = 0;
  std::uint64_t dynamic_bytes_ = 0;
  std::vector<NamedSymbol> symbols_;
};

}  // namespace dstune
