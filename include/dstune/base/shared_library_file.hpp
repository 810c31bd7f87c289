#pragma once
/// Reads what a shared library's file says of itself, before anything of it is loaded or run. Reads
/// the same tables as the dynamic linker (ELF: the dynamic section, its symbol and hash tables;
/// System V ABI, generic part, chapter 5). Local.

#include <map>
#include <string>
#include <string_view>

namespace dstune {

/// A symbol that a library itself defines for others.
struct ExportedSymbol {
  bool is_function = false;
  std::string_view content;  ///< as far as the file holds it
};

/// The symbols of a library by their names, from the content of its file, which outlives them;
/// `path` is for messages. Throws Error saying what it is instead where the content is no shared
/// library, is damaged, or is for another kind of machine than this process.
std::map<std::string, ExportedSymbol> exported_symbols(std::string_view content,
                                                       const std::string& path);

}  // namespace dstune
