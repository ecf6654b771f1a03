# cuemu_library(NAME n [BARE]): the emulator and all kernels of kernels/cuda above it.
find_path(PAGODA_CUDA_INCLUDE cuda_fp16.h
          HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include
          DOC "Headers of the CUDA toolkit, for tests of kernels; without them they bring their own")

file(GLOB cuda_kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
set_source_files_properties(${cuda_kernel_sources} PROPERTIES LANGUAGE CXX)

function(cuemu_library)
  cmake_parse_arguments(ARG "BARE" "NAME" "" ${ARGN})
  # Its own notes must stay invisible to the thread sanitizer: see cuemu.cc.
  add_library(${ARG_NAME}_engine OBJECT ${CMAKE_CURRENT_SOURCE_DIR}/cuemu/cuemu.cc
                                        ${CMAKE_CURRENT_SOURCE_DIR}/cuemu/collectives.cc)
  add_library(${ARG_NAME} STATIC ${cuda_kernel_sources} $<TARGET_OBJECTS:${ARG_NAME}_engine>)
  target_compile_options(${ARG_NAME} PRIVATE -x c++)
  foreach(target IN ITEMS ${ARG_NAME}_engine ${ARG_NAME})
    target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    target_compile_options(${target} PUBLIC -Wno-unknown-pragmas)
    target_link_libraries(${target} PUBLIC Threads::Threads)
    if(ARG_BARE)
      target_compile_definitions(${target} PUBLIC PAGODA_NO_TOOLKIT)
    elseif(PAGODA_CUDA_INCLUDE)
      target_include_directories(${target} SYSTEM PUBLIC ${PAGODA_CUDA_INCLUDE})
    endif()
    if(PAGODA_SANITIZE MATCHES address)
      target_compile_definitions(${target} PUBLIC CUEMU_ASAN)
      # A second stack for each of thousands of fibers takes longer than all the rest.
      target_compile_options(${target} PUBLIC "SHELL:--param asan-use-after-return=0")
    elseif(PAGODA_SANITIZE STREQUAL "thread")
      target_compile_definitions(${target} PUBLIC CUEMU_TSAN)
    endif()
  endforeach()
  target_compile_options(${ARG_NAME}_engine PRIVATE -fno-sanitize=thread)
endfunction()

# cuemu_tests(NAME n PREFIX p LIBRARY l)
function(cuemu_tests)
  cmake_parse_arguments(ARG "" "NAME;PREFIX;LIBRARY" "" ${ARGN})
  gtest_program(NAME ${ARG_NAME} PREFIX ${ARG_PREFIX} FOLDERS cuemu/test LIBRARIES kernels base
                THREADED ".")
  target_link_libraries(pagoda_${ARG_NAME} PRIVATE ${ARG_LIBRARY})
  target_sources(pagoda_${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/kernels/cuda/attention_plan.cc)
endfunction()

cuemu_library(NAME cuemu)
cuemu_tests(NAME cuemu_test PREFIX cuemu LIBRARY cuemu)
if(PAGODA_CUDA_INCLUDE AND NOT PAGODA_SANITIZE)
  cuemu_library(NAME cuemu_bare BARE)
  cuemu_tests(NAME cuemu_bare_test PREFIX cuemu.bare LIBRARY cuemu_bare)
endif()
