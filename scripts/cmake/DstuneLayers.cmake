# dstune_layer(NAME USES layer... LIBRARIES target...)
# One static library a folder: all of src/NAME/*.cpp (kernels: kernels/cpu/*.cpp), headers in
# include/dstune/NAME. USES names the layers it may include; mpi_tests/layers checks the #include lines.
function(dstune_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FOLDER" "USES;LIBRARIES")
  if(NOT arg_FOLDER)
    set(arg_FOLDER "${PROJECT_SOURCE_DIR}/src/${name}")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${arg_FOLDER}/*.cpp")
  add_library(dstune_${name} STATIC ${sources})
  target_include_directories(dstune_${name} PRIVATE "${arg_FOLDER}")
  list(TRANSFORM arg_USES PREPEND dstune_)
  target_link_libraries(dstune_${name} PUBLIC dstune_flags ${arg_USES} ${arg_LIBRARIES})
endfunction()
