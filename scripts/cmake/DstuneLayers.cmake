# dstune_layer(NAME USES layer... LIBRARIES target... [APART folder...] [HEADERS name])
# One static library a folder: all .cpp below src/NAME (kernels: kernels/cpu/*.cpp), headers in
# include/dstune/NAME. Private headers are included by their path from src/NAME. A layer of headers
# alone is an interface library. USES names the layers it may include; the test `layers` checks the
# #include lines. APART names subfolders whose sources the caller adds by rules of its own. HEADERS
# names the precompiled headers that its sources begin with.
function(dstune_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOLDER;HEADERS" "USES;LIBRARIES;APART")
  set(glob GLOB)
  if(NOT arg_FOLDER)
    set(arg_FOLDER "${PROJECT_SOURCE_DIR}/src/${name}")
    set(glob GLOB_RECURSE)
  endif()
  list(TRANSFORM arg_USES PREPEND dstune_)
  file(${glob} sources CONFIGURE_DEPENDS "${arg_FOLDER}/*.cpp")
  foreach(folder IN LISTS arg_APART)
    list(FILTER sources EXCLUDE REGEX "^${arg_FOLDER}/${folder}/")
  endforeach()
  if(NOT sources)
    add_library(dstune_${name} INTERFACE)
    target_link_libraries(dstune_${name} INTERFACE dstune_flags ${arg_USES} ${arg_LIBRARIES})
    return()
  endif()
  add_library(dstune_${name} STATIC ${sources})
  target_include_directories(dstune_${name} PRIVATE "${arg_FOLDER}")
  target_link_libraries(dstune_${name} PUBLIC dstune_flags ${arg_USES} ${arg_LIBRARIES})
  # What the caller adds is joined, too.
  cmake_language(EVAL CODE "cmake_language(DEFER CALL dstune_compile_joined dstune_${name})")
  # Where it inlines more, g++ 12 warns of what the insides of std::string and std::optional never do
  # (GCC bugs 105329, 105651, 80635); and a class of one .cpp file is not one of that file there. Builds
  # with DSTUNE_JOINED_UNITS=OFF keep these warnings.
  if(DSTUNE_JOINED_UNITS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(dstune_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds -Wno-maybe-uninitialized
      -Wno-stringop-overflow -Wno-stringop-overread -Wno-subobject-linkage>)
  endif()
  if(arg_HEADERS)
    dstune_use_precompiled(dstune_${name} ${arg_HEADERS})
  endif()
endfunction()
