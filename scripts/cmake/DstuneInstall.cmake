# cmake --install: the folders of GNU (DstuneFolders.cmake). Neither tests nor what writes the
# reference is installed.
install(TARGETS dstune-mpi DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS dstune-mpi-library dstune-mpi-comm LIBRARY DESTINATION "${DSTUNE_LIBRARIES}")

# find_package(dstune CONFIG): the header for workloads of users, on any machine.
include(CMakePackageConfigHelpers)
set(config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/dstune")
add_library(dstune_workload INTERFACE)
add_library(dstune::workload ALIAS dstune_workload)
set_target_properties(dstune_workload PROPERTIES EXPORT_NAME workload)
target_include_directories(dstune_workload INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(FILES "${PROJECT_SOURCE_DIR}/include/dstune/workload.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/dstune")
install(TARGETS dstune_workload EXPORT dstune)
install(EXPORT dstune NAMESPACE dstune:: FILE dstune-config.cmake DESTINATION "${config_folder}")
# Without an installation, the build folder is a package, too.
export(EXPORT dstune NAMESPACE dstune:: FILE "${PROJECT_BINARY_DIR}/dstune-config.cmake")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/dstune-config-version.cmake"
  COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/dstune-config-version.cmake" DESTINATION "${config_folder}")

# Examples and pages name each other by their places in the checkout, so they keep these.
foreach(folder spaces plugin)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/scripts/${folder}" DESTINATION "${DSTUNE_DATA}/examples"
          PATTERN __pycache__ EXCLUDE PATTERN autotuning_results EXCLUDE
          PATTERN autotuning_exps EXCLUDE)
endforeach()
# Batch scripts of the checkout start what is built there; installed ones start what PATH has.
foreach(folder slurm pbs lsf flux)
  file(GLOB scripts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/scripts/${folder}/tune*")
  foreach(script IN LISTS scripts)
    cmake_path(GET script FILENAME name)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}")
    file(READ "${script}" text)
    string(REPLACE "scripts/${folder}/tune" "tune" text "${text}")
    string(REPLACE ":-build/release/dstune-mpi" ":-dstune-mpi" text "${text}")
    string(REPLACE ":-scripts/spaces/quickstart.json" ":-space.json" text "${text}")
    file(WRITE "${PROJECT_BINARY_DIR}/examples/${folder}/${name}" "${text}")
  endforeach()
  install(DIRECTORY "${PROJECT_BINARY_DIR}/examples/${folder}" DESTINATION "${DSTUNE_DATA}/examples")
endforeach()
file(GLOB schemas CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/*.schema.json")
install(FILES ${schemas} DESTINATION "${DSTUNE_DATA}/schema")
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/LICENSE"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        FILES_MATCHING PATTERN "*.md")

if(TARGET manuals)
  set(manuals "${PROJECT_BINARY_DIR}/manuals")
  install(FILES "${manuals}/dstune-mpi.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${manuals}/dstune-space.5" DESTINATION "${CMAKE_INSTALL_MANDIR}/man5")
  install(FILES "${manuals}/dstune-mpi.bash" RENAME dstune-mpi
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${manuals}/_dstune-mpi" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${manuals}/dstune-mpi.fish"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()

# CMake's own manifest is also written by cpack, whose files are not there.
install(CODE "
  if(NOT CMAKE_INSTALL_COMPONENT AND NOT \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\" MATCHES _CPack_Packages)
    list(JOIN CMAKE_INSTALL_MANIFEST_FILES \"\\n\" files)
    file(WRITE \"${PROJECT_BINARY_DIR}/installed_files.txt\" \"\${files}\\n\")
  endif()")
add_custom_target(uninstall
  COMMAND "${CMAKE_COMMAND}" -D "MANIFEST=${PROJECT_BINARY_DIR}/installed_files.txt"
          -P "${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake"
  COMMENT "Removing what installed_files.txt names" VERBATIM)
