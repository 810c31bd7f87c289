# cmake -D OUT=header -D FOLDER=folder -D "PAIRS=name=file;..." -P embed.cmake: see DstuneEmbed.cmake.
# A text may be longer than the standard asks compilers to take.
set(text "#pragma once\n#pragma GCC system_header\n#include <string_view>\n\nnamespace dstune::embedded {\n\n")
foreach(pair IN LISTS PAIRS)
  string(REGEX MATCH "^([^=]+)=(.+)$" matched "${pair}")
  set(name "${CMAKE_MATCH_1}")
  file(READ "${FOLDER}/${CMAKE_MATCH_2}" content)
  string(APPEND text "inline constexpr std::string_view ${name} = R\"DSTUNE(${content})DSTUNE\";\n\n")
endforeach()
file(WRITE "${OUT}" "${text}}  // namespace dstune::embedded\n")
