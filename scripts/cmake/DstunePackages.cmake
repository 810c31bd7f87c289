# cpack: a Debian package of what is installed, and with --config CPackSourceConfig.cmake an archive
# of the sources.
set(CPACK_PACKAGE_NAME dstune-mpi)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_BINARY_DIR}/package_options.cmake")
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# The maintainer and the package's revision stand in Debian's changelog.
set(debian "${PROJECT_SOURCE_DIR}/scripts/packaging/debian")
file(STRINGS "${debian}/changelog" head LIMIT_COUNT 1)
file(STRINGS "${debian}/changelog" signed REGEX "^ -- " LIMIT_COUNT 1)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${debian}/changelog")
string(REGEX MATCH "\\(([^-]+)-([^)]+)\\)" matched "${head}")
set(DSTUNE_DEBIAN_VERSION "${CMAKE_MATCH_1}")
set(CPACK_DEBIAN_PACKAGE_RELEASE "${CMAKE_MATCH_2}")
string(REGEX REPLACE "^ -- (.*>)  .*" "\\1" CPACK_DEBIAN_PACKAGE_MAINTAINER "${signed}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, gcc, python3, slurm-client")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PACKAGE_DESCRIPTION_FILE "${debian}/description")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
# With MPICH the launcher is another.
if(MPI_C_LIBRARIES MATCHES "mpich")
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS mpich)
endif()

set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME "dstune-mpi-${PROJECT_VERSION}")
# A script copies the files.
set(CPACK_SOURCE_INSTALLED_DIRECTORIES "")
set(CPACK_SOURCE_IGNORE_FILES "")

configure_file("${CMAKE_CURRENT_LIST_DIR}/package_options.cmake.in" "${CPACK_PROJECT_CONFIG_FILE}"
               @ONLY)
include(CPack)
