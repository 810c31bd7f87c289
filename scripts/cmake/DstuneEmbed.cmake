# dstune_embed(target header name=file[+file...]...): what is no C++ is a file of its own and part of the program.
# Several files make one text, in their order.
# Sources of the target include it as "embedded/HEADER": std::string_view dstune::embedded::NAME each.
function(dstune_embed target header)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded")
  set(files "")
  foreach(pair IN LISTS ARGN)
    string(REGEX REPLACE "^[^=]+=" "" file "${pair}")
    string(REPLACE "+" ";" parts "${file}")
    list(TRANSFORM parts PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    list(APPEND files ${parts})
  endforeach()
  add_custom_command(OUTPUT "${folder}/embedded/${header}"
    COMMAND "${CMAKE_COMMAND}" -D "OUT=${folder}/embedded/${header}" -D "FOLDER=${CMAKE_CURRENT_SOURCE_DIR}"
            -D "PAIRS=${ARGN}" -P "${PROJECT_SOURCE_DIR}/scripts/cmake/embed.cmake"
    DEPENDS ${files} "${PROJECT_SOURCE_DIR}/scripts/cmake/embed.cmake" COMMENT "" VERBATIM)
  target_sources(${target} PRIVATE "${folder}/embedded/${header}")
  target_include_directories(${target} PRIVATE "${folder}")
endfunction()

# dstune_embed_modules(target header package folder): the .py files of a folder as the modules of a Python
# package. Sources of the target include it as "embedded/HEADER": dstune::embedded::modules, name and source.
function(dstune_embed_modules target header package folder)
  set(out "${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded/embedded/${header}")
  file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.py")
  add_custom_command(OUTPUT "${out}"
    COMMAND "${CMAKE_COMMAND}" -D "OUT=${out}" -D "PACKAGE=${package}" -D "FILES=${files}"
            -P "${PROJECT_SOURCE_DIR}/scripts/cmake/embed_modules.cmake"
    DEPENDS ${files} "${PROJECT_SOURCE_DIR}/scripts/cmake/embed_modules.cmake" COMMENT "" VERBATIM)
  target_sources(${target} PRIVATE "${out}")
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded")
endfunction()
