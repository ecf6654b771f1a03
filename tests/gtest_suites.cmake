# Run by ctest when it starts: asks one GoogleTest program for its suites and makes a ctest entry
# of each. In: prefix, program, threaded (regex of suites, or empty), directory (to run in).
#
# ctest reads this file in its own small language: add_test and set_tests_properties take plain
# arguments, and nothing set here outlives the next include, so everything is set anew each time.
string(REGEX MATCH "^[a-z0-9]+" folder "${prefix}")

if(NOT EXISTS "${program}")
  add_test("${prefix}.not_built" "${program}")
  set_tests_properties("${prefix}.not_built" PROPERTIES LABELS "${folder}")
  return()
endif()

execute_process(
  COMMAND "${program}" --gtest_list_tests
  WORKING_DIRECTORY "${directory}"
  OUTPUT_VARIABLE listing
  ERROR_VARIABLE problem
  RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${program} --gtest_list_tests failed (${result}): ${listing}${problem}")
endif()

# A suite's line begins in the first column and ends in a dot; a typed suite adds a comment.
string(REPLACE ";" "," listing "${listing}")
string(REPLACE "\n" ";" listing "${listing}")
foreach(line IN LISTS listing)
  if(NOT line MATCHES "^([A-Za-z0-9_/]+)\\.( *#.*)?$")
    continue()
  endif()
  set(suite "${CMAKE_MATCH_1}")
  string(REPLACE "/" "." shown "${suite}")
  set(labels "${folder}")
  if(threaded AND suite MATCHES "${threaded}")
    set(labels "${folder};threads")
  endif()
  add_test("${prefix}.${shown}" "${program}" "--gtest_filter=${suite}.*" --gtest_brief=1)
  set_tests_properties("${prefix}.${shown}" PROPERTIES
    LABELS "${labels}" TIMEOUT 600 WORKING_DIRECTORY "${directory}")
endforeach()
