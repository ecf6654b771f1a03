# What is installed, and the packages for people without a compiler; scripts/package.sh makes them.
#   pagoda_VERSION_amd64.deb              for Debian 12, whose own packages bring the libraries
#   pagoda-VERSION-linux-x86_64.tar.gz    for any Linux with glibc 2.36; brings its libraries along
# Components: `program` goes into both, `service` only into the first, `libraries` only into the
# second.
include(GNUInstallDirs)

# The private folder of libraries that the archive brings; the Debian package has none. A RUNPATH
# would be used for the program's own needs and not for those of its libraries: hence the old tag.
target_link_options(pagoda PRIVATE -Wl,--disable-new-dtags)
set_target_properties(pagoda PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/pagoda")

install(TARGETS pagoda RUNTIME_DEPENDENCY_SET pagoda_libraries
        RUNTIME DESTINATION bin COMPONENT program)
# glibc belongs to the machine: its loader, libraries and name services only work together.
install(RUNTIME_DEPENDENCY_SET pagoda_libraries
        PRE_EXCLUDE_REGEXES [[^ld-linux.*\.so]] [[^lib(c|m|dl|rt|pthread|resolv)\.so]]
        LIBRARY DESTINATION lib/pagoda COMPONENT libraries)
# Whoever hands a library on hands on its licence.
install(CODE [[
  set(top "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  file(GLOB files RELATIVE "${top}/lib/pagoda" "${top}/lib/pagoda/*")
  list(TRANSFORM files PREPEND "*/")
  execute_process(COMMAND dpkg-query --search ${files} OUTPUT_VARIABLE owners ERROR_QUIET)
  string(REGEX MATCHALL "[^\n]+" owners "${owners}")
  list(FILTER owners EXCLUDE REGEX "/libx?32/")  # the same names, built for other programs
  list(TRANSFORM owners REPLACE "[:,].*" "")
  list(REMOVE_DUPLICATES owners)
  file(MAKE_DIRECTORY "${top}/share/doc/pagoda/licences")
  foreach(owner IN LISTS owners)
    if(EXISTS "/usr/share/doc/${owner}/copyright")
      file(COPY_FILE "/usr/share/doc/${owner}/copyright"
           "${top}/share/doc/pagoda/licences/${owner}")
    endif()
  endforeach()
]] COMPONENT libraries)

install(DIRECTORY configs/ DESTINATION share/doc/pagoda/examples COMPONENT program
        FILES_MATCHING PATTERN "*.yaml" PATTERN "*.yml" PATTERN "RUNBOOK.md" PATTERN "*.json")
install(FILES server/api/README.md DESTINATION share/doc/pagoda RENAME API.md COMPONENT program)
install(FILES configs/pagoda.service DESTINATION lib/systemd/system COMPONENT service)
install(FILES configs/pagoda.default DESTINATION /etc/default RENAME pagoda COMPONENT service)

set(CPACK_PACKAGE_NAME pagoda)
set(CPACK_PACKAGE_VENDOR "Pagoda")
set(CPACK_PACKAGE_CONTACT "Pagoda developers <pagoda@example.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "inference server for large language models")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Pagoda serves large language models from GGUF files over an OpenAI-compatible
HTTP API. It batches continuously, shares the KV cache between requests that
begin alike, and chooses the kernels for this machine's processor when it starts.
.
The service pagoda.service is installed but not enabled; /etc/default/pagoda
says which model it serves.")
set(CPACK_PACKAGE_FILE_NAME "pagoda-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_STRIP_FILES ON)
# The program alone is packed, so the tests need not be built for it.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
# Folders get the same mode whatever the umask of who packs.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
file(WRITE ${CMAKE_BINARY_DIR}/package/conffiles "/etc/default/pagoda\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/package/conffiles)

# Read by cpack once for each kind of package.
file(WRITE ${CMAKE_BINARY_DIR}/package/components.cmake [[
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL program service)
else()
  set(CPACK_COMPONENTS_ALL program libraries)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
]])
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/package/components.cmake)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_GENERATOR DEB TGZ)
include(CPack)
