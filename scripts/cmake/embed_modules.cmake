# cmake -D OUT=header -D PACKAGE=name -D "FILES=file;..." -P embed_modules.cmake: see DstuneEmbed.cmake.
set(rows "")
set(count 0)
foreach(file IN LISTS FILES)
  cmake_path(GET file STEM module)
  set(name "${PACKAGE}.${module}")
  if(module STREQUAL "__init__")
    set(name "${PACKAGE}")
  endif()
  file(READ "${file}" content)
  string(APPEND rows "    {\"${name}\", R\"DSTUNE(${content})DSTUNE\"},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE "${OUT}" "#pragma once
#include <array>
#include <string_view>

namespace dstune::embedded {

struct Module {
  std::string_view name;
  const char* source;
};
inline constexpr std::array<Module, ${count}> modules{{
${rows}}};

}  // namespace dstune::embedded
")
