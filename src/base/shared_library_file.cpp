#include "dstune/base/shared_library_file.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include <elf.h>
#include <link.h>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// Types of this process's own width. A library of the other width is refused by its
/// identification.
using Header = ElfW(Ehdr);
using ProgramHeader = ElfW(Phdr);
using Dynamic = ElfW(Dyn);
using ElfSymbol = ElfW(Sym);

/// More than any library has: what a damaged table claims is not believed.
constexpr std::uint64_t max_symbols = std::uint64_t{1} << 24;

/// The header of the program that runs: what its libraries must be like.
Header own_header() {
  Header own{};
  std::ifstream file("/proc/self/exe", std::ios::binary);
  file.read(reinterpret_cast<char*>(&own), sizeof own);
  if (!file) throw IoError("can not read /proc/self/exe");
  return own;
}

std::string machine_name(std::uint16_t machine) {
  static const std::map<int, std::string> names{{EM_386, "x86"},
                                                {EM_X86_64, "x86-64"},
                                                {EM_AARCH64, "aarch64"},
                                                {EM_PPC64, "ppc64"},
                                                {EM_RISCV, "riscv"}};
  const auto found = names.find(machine);
  return found == names.end() ? "machine number " + std::to_string(machine) : found->second;
}

class LibraryReader {
 public:
  LibraryReader(std::string_view content, const std::string& path)
      : path_(path), content_(content) {}

  void check_kind() const {
    if (content_.size() < SELFMAG || std::memcmp(content_.data(), ELFMAG, SELFMAG) != 0) {
      refuse("is no shared library (not an ELF file)");
    }
    const auto header = at_offset<Header>(0);
    const Header own = own_header();
    if (header.e_ident[EI_CLASS] != own.e_ident[EI_CLASS]) {
      refuse(own.e_ident[EI_CLASS] == ELFCLASS64 ? "is no 64-bit library, as this program needs"
                                                 : "is no 32-bit library, as this program needs");
    }
    if (header.e_ident[EI_DATA] != own.e_ident[EI_DATA]) refuse("has another byte order");
    if (header.e_machine != own.e_machine) {
      refuse("is for " + machine_name(header.e_machine) + ", and this machine is " +
             machine_name(own.e_machine));
    }
    if (header.e_type != ET_DYN) {
      refuse(header.e_type == ET_REL ? "is an object file: link it with -shared"
                                     : "is a program or a core file, not a shared library");
    }
  }

  void read_segments() {
    const auto header = at_offset<Header>(0);
    if (header.e_phentsize != sizeof(ProgramHeader))
      refuse("is damaged: its segments are not known");
    for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
      const auto segment = at_offset<ProgramHeader>(header.e_phoff + i * sizeof(ProgramHeader));
      if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
      if (segment.p_offset > content_.size() ||
          content_.size() - segment.p_offset < segment.p_filesz) {
        refuse("is cut short");
      }
      if (segment.p_type == PT_LOAD) {
        segments_.push_back({segment.p_vaddr, content_.substr(segment.p_offset, segment.p_filesz)});
      } else {
        dynamic_offset_ = segment.p_offset;
        dynamic_bytes_ = segment.p_filesz;
      }
    }
    if (dynamic_bytes_ == 0) refuse("is no shared library: it has no dynamic section");
  }

  [[nodiscard]] std::map<std::string, ExportedSymbol> symbols() const {
    std::map<std::int64_t, std::uint64_t> values;  // of the tags; addresses are values, too
    for (std::uint64_t i = 0; i < dynamic_bytes_ / sizeof(Dynamic); ++i) {
      const auto entry = at_offset<Dynamic>(dynamic_offset_ + i * sizeof(Dynamic));
      if (entry.d_tag == DT_NULL) break;
      values[entry.d_tag] = entry.d_un.d_val;
    }
    if ((values[DT_FLAGS_1] & DF_1_PIE) != 0)
      refuse("is a program, not a shared library: link it with -shared");
    const std::uint64_t symbols = values[DT_SYMTAB];
    const std::uint64_t names = values[DT_STRTAB];
    if (symbols == 0 || names == 0) refuse("is damaged: it has no table of symbols");
    std::map<std::string, ExportedSymbol> exported;
    const std::uint64_t count = count_symbols(values[DT_HASH], values[DT_GNU_HASH]);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto symbol = at_address<ElfSymbol>(symbols + i * sizeof(ElfSymbol));
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) continue;
      const int type = ELF64_ST_TYPE(symbol.st_info);
      const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
      if (!is_function && type != STT_OBJECT) continue;
      exported.try_emplace(
          text_at(names + symbol.st_name),
          ExportedSymbol{is_function, content_at(symbol.st_value, symbol.st_size)});
    }
    return exported;
  }

 private:
  struct Segment {
    std::uint64_t address;
    std::string_view content;
  };

  [[noreturn]] void refuse(const std::string& why) const { throw Error(path_ + " " + why); }

  /// A structure at a place in the file.
  template <class T>
  [[nodiscard]] T at_offset(std::uint64_t offset) const {
    if (offset > content_.size() || content_.size() - offset < sizeof(T)) refuse("is cut short");
    return structure<T>(content_.substr(offset));
  }
  /// A structure at an address of the loaded library.
  template <class T>
  [[nodiscard]] T at_address(std::uint64_t address) const {
    const std::string_view bytes = content_at(address, sizeof(T));
    if (bytes.size() < sizeof(T)) refuse("is damaged: a table lies outside the file");
    return structure<T>(bytes);
  }
  template <class T>
  static T structure(std::string_view bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  /// So many bytes at an address of the loaded library, or as many as the file holds.
  [[nodiscard]] std::string_view content_at(std::uint64_t address, std::uint64_t bytes) const {
    for (const Segment& segment : segments_) {
      if (address < segment.address) continue;
      const std::uint64_t within = address - segment.address;
      if (within < segment.content.size()) return segment.content.substr(within, bytes);
    }
    return {};
  }

  /// The table of symbols does not say how long it is; its hash tables do.
  [[nodiscard]] std::uint64_t count_symbols(std::uint64_t hash, std::uint64_t gnu_hash) const {
    std::uint64_t count = 0;
    if (hash != 0) {
      count = at_address<std::array<std::uint32_t, 2>>(hash)[1];
    } else if (gnu_hash != 0) {
      const auto [buckets, first, bloom_words, shift] =
          at_address<std::array<std::uint32_t, 4>>(gnu_hash);
      const std::uint64_t bucket_table = gnu_hash + 16 + bloom_words * sizeof(ElfW(Addr));
      const std::uint64_t chains = bucket_table + std::uint64_t{buckets} * 4;
      std::uint64_t last = 0;
      for (std::uint64_t i = 0; i < buckets; ++i) {
        last = std::max<std::uint64_t>(last, at_address<std::uint32_t>(bucket_table + i * 4));
      }
      if (last < first || last == 0) return 0;  // exports nothing
      // A chain ends at the value whose lowest bit is set.
      while ((at_address<std::uint32_t>(chains + (last - first) * 4) & 1) == 0) ++last;
      count = last + 1;
    } else {
      refuse("is damaged: it has no hash table of symbols");
    }
    if (count > max_symbols) refuse("is damaged: it claims " + std::to_string(count) + " symbols");
    return count;
  }

  [[nodiscard]] std::string text_at(std::uint64_t address) const {
    const std::string_view text = content_at(address, content_.size());
    if (text.empty()) refuse("is damaged: a name lies outside the file");
    const std::size_t end = text.find('\0');
    if (end == text.npos) refuse("is cut short");
    return std::string(text.substr(0, end));
  }

  const std::string& path_;
  std::string_view content_;
  std::vector<Segment> segments_;
  std::uint64_t dynamic_offset_ = 0;
  std::uint64_t dynamic_bytes_ = 0;
};

}  // namespace

std::map<std::string, ExportedSymbol> exported_symbols(std::string_view content,
                                                       const std::string& path) {
  LibraryReader reader(content, path);
  reader.check_kind();
  reader.read_segments();
  return reader.symbols();
}

}  // namespace dstune
