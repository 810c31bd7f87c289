#include "dstune/base/shared_library_file.hpp"

#include <array>
#include <cstring>
#include <fstream>

#include <elf.h>
#include <link.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"

namespace dstune {
namespace {

/// Of this process's own width: a library of the other is refused by its identification.
using Header = ElfW(Ehdr);
using ProgramHeader = ElfW(Phdr);
using Dynamic = ElfW(Dyn);
using ElfSymbol = ElfW(Sym);

/// More than any library has: what a damaged table claims is not believed.
constexpr std::uint64_t max_symbols = std::uint64_t{1} << 24;

/// The header of the program that runs: what its libraries must be like.
const Header& own_header() {
  static const Header header = [] {
    Header own{};
    std::ifstream file("/proc/self/exe", std::ios::binary);
    file.read(reinterpret_cast<char*>(&own), sizeof own);
    if (!file) throw IoError("can not read /proc/self/exe");
    return own;
  }();
  return header;
}

std::string machine_name(std::uint16_t machine) {
  switch (machine) {
    case EM_386:
      return "x86";
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_PPC64:
      return "ppc64";
    case EM_RISCV:
      return "riscv";
    default:
      return "machine number " + std::to_string(machine);
  }
}

}  // namespace

SharedLibraryFile::SharedLibraryFile(const std::string& path)
    : SharedLibraryFile(read_file(path), path) {}

SharedLibraryFile::SharedLibraryFile(std::string content, const std::string& path)
    : path_(path), content_(std::move(content)) {
  if (content_.size() < SELFMAG || std::memcmp(content_.data(), ELFMAG, SELFMAG) != 0) {
    refuse("is no shared library (not an ELF file)");
  }
  const auto header = at_offset<Header>(0);
  const Header& own = own_header();
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
  read_segments();
  read_symbols();
}

void SharedLibraryFile::refuse(const std::string& why) const {
  throw Error(path_ + " " + why);
}

template <class T>
T SharedLibraryFile::at_offset(std::uint64_t offset) const {
  if (offset > content_.size() || content_.size() - offset < sizeof(T)) refuse("is cut short");
  T value;
  std::memcpy(&value, content_.data() + offset, sizeof value);
  return value;
}

template <class T>
T SharedLibraryFile::at_address(std::uint64_t address) const {
  const auto offset = offset_of(address, sizeof(T));
  if (!offset) refuse("is damaged: a table lies outside the file");
  return at_offset<T>(*offset);
}

std::optional<std::uint64_t> SharedLibraryFile::offset_of(std::uint64_t address,
                                                          std::uint64_t bytes) const {
  for (const Segment& segment : segments_) {
    if (address < segment.address) continue;
    const std::uint64_t within = address - segment.address;
    if (within <= segment.file_bytes && segment.file_bytes - within >= bytes) {
      return segment.offset + within;
    }
  }
  return std::nullopt;
}

void SharedLibraryFile::read_segments() {
  const auto header = at_offset<Header>(0);
  if (header.e_phentsize != sizeof(ProgramHeader)) refuse("is damaged: its segments are not known");
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = at_offset<ProgramHeader>(header.e_phoff + i * sizeof(ProgramHeader));
    if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
    if (segment.p_offset > content_.size() ||
        content_.size() - segment.p_offset < segment.p_filesz) {
      refuse("is cut short");
    }
    if (segment.p_type == PT_LOAD) {
      segments_.push_back({segment.p_vaddr, segment.p_offset, segment.p_filesz});
    } else {
      dynamic_offset_ = segment.p_offset;
      dynamic_bytes_ = segment.p_filesz;
    }
  }
  if (dynamic_bytes_ == 0) refuse("is no shared library: it has no dynamic section");
}

void SharedLibraryFile::read_symbols() {
  std::uint64_t symbols = 0, names = 0, hash = 0, gnu_hash = 0, flags = 0;
  for (std::uint64_t i = 0; i < dynamic_bytes_ / sizeof(Dynamic); ++i) {
    const auto entry = at_offset<Dynamic>(dynamic_offset_ + i * sizeof(Dynamic));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRTAB) names = entry.d_un.d_ptr;
    if (entry.d_tag == DT_HASH) hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_GNU_HASH) gnu_hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_FLAGS_1) flags = entry.d_un.d_val;
  }
  if ((flags & DF_1_PIE) != 0) refuse("is a program, not a shared library: link it with -shared");
  if (symbols == 0 || names == 0) refuse("is damaged: it has no table of symbols");
  const std::uint64_t count = count_symbols(hash, gnu_hash);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto symbol = at_address<ElfSymbol>(symbols + i * sizeof(ElfSymbol));
    if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL) continue;
    const int type = ELF64_ST_TYPE(symbol.st_info);
    const bool is_function = type == STT_FUNC || type == STT_GNU_IFUNC;
    if (!is_function && type != STT_OBJECT) continue;
    symbols_.push_back(
        {text_at(names + symbol.st_name), {is_function, symbol.st_value, symbol.st_size}});
  }
}

/// The table of symbols does not say how long it is; its hash tables do.
std::uint64_t SharedLibraryFile::count_symbols(std::uint64_t hash, std::uint64_t gnu_hash) const {
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

std::string SharedLibraryFile::text_at(std::uint64_t address) const {
  const auto offset = offset_of(address, 1);
  if (!offset) refuse("is damaged: a name lies outside the file");
  const std::size_t end = content_.find('\0', *offset);
  if (end == std::string::npos) refuse("is cut short");
  return content_.substr(*offset, end - *offset);
}

std::optional<SharedLibraryFile::Symbol> SharedLibraryFile::find(const std::string& name) const {
  for (const NamedSymbol& one : symbols_) {
    if (one.name == name) return one.symbol;
  }
  return std::nullopt;
}

std::optional<std::string> SharedLibraryFile::content_of(const Symbol& symbol,
                                                         std::uint64_t bytes) const {
  const auto offset = offset_of(symbol.address, bytes);
  if (!offset || symbol.size_bytes < bytes) return std::nullopt;
  return content_.substr(*offset, bytes);
}

}  // namespace dstune
