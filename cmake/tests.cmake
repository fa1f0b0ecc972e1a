# One program per tests/unit/<core> and tests/<kind>: a broken core breaks its own tests only.
set(test_seconds 300)
if(DTRAIN_SANITIZE)
  set(test_seconds 1800)
endif()
# The undefined-behaviour sanitizer is to see what is tested. In tests and simulators it would see their own faults alone, and is a quarter of what
# they take to compile; but those of decoders and records have the codec's templates in them, and the linker takes these from there.
if(DTRAIN_SANITIZE MATCHES "undefined")
  add_compile_options(-fno-sanitize=undefined)
  set(see_undefined -fsanitize=undefined)
endif()
set(batch_size 12)  # of tests; the programs' are larger (batches.cmake), which was not tried here
# Test programs can break rules, the others cannot: common/base/broken_rule.h.
add_library(breaks_rules OBJECT tests/support/breaks_rules.cpp)
target_link_libraries(breaks_rules PUBLIC dtrain_base)
function(dtrain_test name directory)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${directory}/*.cpp)
  if(NOT sources)
    return()
  endif()
  # Only the sources that name the directory of the sources get it: an object that holds no path of a checkout is found in ccache again from
  # every other checkout.
  foreach(source ${sources})
    file(STRINGS ${source} names_it REGEX "DTRAIN_SOURCE_DIR" LIMIT_COUNT 1)
    if(names_it)
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS "DTRAIN_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\"")
    endif()
  endforeach()
  list(LENGTH sources count)
  if(count GREATER 4)
    dtrain_batches(sources ${name} ${sources})
  endif()
  add_executable(${name} ${sources} $<TARGET_OBJECTS:breaks_rules>)
  target_link_libraries(${name} PRIVATE ${ARGN} rapidcheck GTest::gtest_main GTest::gmock Threads::Threads)
  if(NOT name MATCHES "^(unit_sim|scenarios)")
    # Optimizing tests that run for a second is a third of what a release build takes; the code under test is optimized.
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  endif()
  if(name MATCHES "^unit_(wire|gossip|raft|job|transfer|cluster)$")
    target_compile_options(${name} PRIVATE ${see_undefined})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${test_seconds})
endfunction()

dtrain_test(unit_base tests/unit/base dtrain_base)
dtrain_test(unit_wire tests/unit/wire dtrain_job)
dtrain_test(unit_gossip tests/unit/gossip dtrain_gossip)
dtrain_test(unit_raft tests/unit/raft dtrain_raft)
dtrain_test(unit_relay tests/unit/relay dtrain_relay)
dtrain_test(unit_job tests/unit/job dtrain_job)
dtrain_test(unit_json tests/unit/json dtrain_json)
dtrain_test(unit_transfer tests/unit/transfer dtrain_transfer)
dtrain_test(unit_cluster tests/unit/cluster dtrain_cluster)
dtrain_test(unit_task tests/unit/task dtrain_task)
dtrain_test(unit_node tests/unit/node dtrain_node)
dtrain_test(unit_agent_base tests/unit/agent_base dtrain_agent_base)
dtrain_test(unit_loop tests/unit/loop dtrain_loop)
dtrain_test(unit_net tests/unit/net dtrain_net)
dtrain_test(unit_host tests/unit/host dtrain_host)
dtrain_test(unit_discover tests/unit/discover dtrain_discovery)
add_library(fake_nvml MODULE tests/unit/discover/fake_nvml/fake_nvml.cpp)
target_compile_definitions(unit_discover PRIVATE DTRAIN_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
add_dependencies(unit_discover fake_nvml dtrain-discover)
dtrain_test(unit_account tests/unit/account dtrain_account)
dtrain_test(unit_store tests/unit/store dtrain_store)
dtrain_test(unit_proc tests/unit/proc dtrain_proc)
if(TARGET dtrain_ctl)
  dtrain_test(unit_dtrainctl tests/unit/dtrainctl dtrain_ctl dtrain_net dtrain_store)
endif()
dtrain_test(unit_dtraind tests/unit/dtraind dtrain_daemon)
dtrain_test(property tests/property dtrain_node)

# The simulated worlds: fakes that the conformance suites test too, and dtrain-sim.
add_library(dtrain_sim_seeds STATIC tests/sim/seed_runs.cpp)  # what all worlds do with a range of seeds
target_link_libraries(dtrain_sim_seeds PUBLIC dtrain_base nlohmann_json::nlohmann_json)
# A simulated world: its directory and that of its checkers, and what it links.
function(dtrain_world name directory checkers)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${directory}/*.cpp ${CMAKE_SOURCE_DIR}/${checkers}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/tests/sim/(main|seed_runs)\\.cpp$")
  dtrain_batches(sources ${name} ${sources})
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC ${ARGN})
  dtrain_often_run(${name})
endfunction()
dtrain_world(dtrain_sim_membership tests/sim/membership tests/sim/membership/checkers dtrain_gossip dtrain_sim_seeds)
dtrain_test(unit_sim_membership tests/unit/sim/membership dtrain_sim_membership)
dtrain_world(dtrain_sim_council tests/sim/council tests/sim/council/checkers dtrain_cluster dtrain_sim_seeds)
dtrain_test(unit_sim_council tests/unit/sim/council dtrain_sim_council)
dtrain_world(dtrain_sim_formation tests/sim/formation tests/sim/formation/checkers dtrain_cluster dtrain_sim_seeds)
dtrain_test(unit_sim_formation tests/unit/sim/formation dtrain_sim_formation)
dtrain_world(dtrain_sim_lease tests/sim/lease tests/sim/lease/checkers dtrain_cluster dtrain_task dtrain_sim_seeds)
dtrain_test(unit_sim_lease tests/unit/sim/lease dtrain_sim_lease)
dtrain_world(dtrain_sim_world tests/sim tests/sim/checkers dtrain_node dtrain_sim_membership fmt::fmt)
dtrain_test(unit_sim tests/unit/sim dtrain_sim_world)
dtrain_test(scenarios tests/scenarios dtrain_sim_world)
dtrain_test(conformance tests/conformance dtrain_sim_world dtrain_proc dtrain_loop)
# The same suite on a host with a systemd of its own: what tests/system/test_systemd_runner.py runs there.
add_executable(systemd_suite tests/conformance/runner_suite.cpp tests/conformance/lease_suite.cpp tests/conformance/standby_suite.cpp
  tests/conformance/systemd/systemd_runner_test.cpp)
target_link_libraries(systemd_suite PRIVATE dtrain_proc GTest::gtest_main GTest::gmock Threads::Threads)
target_compile_options(systemd_suite PRIVATE $<$<CONFIG:Release>:-O0>)
add_executable(dtrain-sim tests/sim/main.cpp $<TARGET_OBJECTS:breaks_rules>)
target_link_libraries(dtrain-sim PRIVATE dtrain_sim_membership dtrain_sim_council dtrain_sim_formation dtrain_sim_lease
  dtrain_sim_world CLI11::CLI11)

# Python tests: tests/system/test_*.py of the real programs, tests/warm/test_*.py of dtrain-warm, tests/tidy/test_*.py; each file is one ctest.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
foreach(kind tidy warm system)
  file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${kind}/test_*.py)
  foreach(script ${scripts})
    get_filename_component(stem ${script} NAME_WE)
    add_test(NAME ${kind}_${stem} COMMAND /usr/bin/python3 ${script})
    set_tests_properties(${kind}_${stem} PROPERTIES
      ENVIRONMENT "DTRAIN_BIN=${CMAKE_BINARY_DIR}/bin;DTRAIN_SOURCE=${CMAKE_SOURCE_DIR}" TIMEOUT 600)
  endforeach()
endforeach()
set_tests_properties(system_test_submits system_test_random_kills system_test_ordinary_day system_test_lease_partitions system_test_gangs system_test_many_hosts
  PROPERTIES TIMEOUT 3600)  # with what --soak makes of them
# Where no host with a systemd of its own can be had: skipped, which tests/run.sh says at its end.
# One at a time, since both make the package in the build directory.
set_tests_properties(system_test_package system_test_package_cluster PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK package)
set_tests_properties(system_test_systemd_runner system_test_frozen_systemd PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(system_test_roles system_test_isolation system_test_forged system_test_remote PROPERTIES SKIP_RETURN_CODE 77)  # without root
set_tests_properties(system_test_ipv6 PROPERTIES SKIP_RETURN_CODE 77)  # without IPv6
set_tests_properties(system_test_real_gpu PROPERTIES SKIP_RETURN_CODE 77)  # without an NVIDIA GPU
# One at a time: each has processes numbered from 1 (the harness chooses addresses by these), and podman's locks of one account.
set_tests_properties(system_test_images system_test_image_pulls PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK images)  # where podman is missing or cannot run
# Twelve agents whose clocks are the measure: another test beside them takes half of a small machine.
set_tests_properties(system_test_membership_faults PROPERTIES RUN_SERIAL ON)

# What takes longest begins first, so that nobody waits for one test at the end.
foreach(slow unit_sim unit_node conformance unit_proc unit_cluster unit_net unit_transfer system_test_pytorch system_test_systemd_runner
    system_test_ordinary_day system_test_examples system_test_lease_partitions system_test_hosts)
  if(TEST ${slow})
    set_tests_properties(${slow} PROPERTIES COST 100)
  endif()
endforeach()

# Fuzzers: each tests/fuzz/fuzz_*.cpp is a libFuzzer program with DTRAIN_FUZZ (clang), else a program that replays its
# corpus, as a test.
file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.cpp)
foreach(fuzzer ${fuzzers})
  get_filename_component(stem ${fuzzer} NAME_WE)
  if(DTRAIN_FUZZ)
    add_executable(${stem} ${fuzzer})
    target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${stem} ${fuzzer} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_corpus.cpp)
    add_test(NAME ${stem}_corpus COMMAND ${stem} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${stem})
  endif()
  target_compile_options(${stem} PRIVATE ${see_undefined})
  target_link_libraries(${stem} PRIVATE dtrain_node dtrain_store)
endforeach()

# Micro benchmarks and helpers of bench/: each bench/*.cpp is a program of that name.
file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.cpp)
foreach(bench ${benches})
  get_filename_component(stem ${bench} NAME_WE)
  add_executable(${stem} ${bench})
  target_link_libraries(${stem} PRIVATE dtrain_node dtrain_proc)
  list(APPEND bench_programs ${stem})
endforeach()
if(TARGET pong_probe)
  target_link_libraries(pong_probe PRIVATE dtrain_net dtrain_loop)
endif()
foreach(program first_stamp no_op)
  # Its own start must cost next to nothing; it links none of our libraries.
  set_target_properties(${program} PROPERTIES LINK_LIBRARIES "")
  dtrain_small_static(${program})
endforeach()

# The agent of an upgrade: it knows a version of the ledger that no release knows (common/wire/since.h).
if(TARGET dtraind)
  add_executable(dtraind_rehearsal agent/dtraind/main.cpp)
  target_link_libraries(dtraind_rehearsal PRIVATE dtrain_daemon)
  target_compile_definitions(dtraind_rehearsal PRIVATE DTRAIN_LEDGER_KNOWS=wire::kRehearsal.version)
  add_dependencies(dtraind_rehearsal dtrain-discover dtrain-shim dtrain-warm)
  list(APPEND bench_programs dtraind_rehearsal)
endif()

# Everything but the tests: what those in Python run, and what bench/ measures.
add_custom_target(programs DEPENDS dtraind dtrainctl dtrain-rsh dtrain-shim dtrain-discover dtrain-warm dtrain-sim systemd_suite ${bench_programs})

# Tests that launch real shims.
foreach(test unit_proc conformance systemd_suite runner_driver launch_pairs)
  if(TARGET ${test} AND TARGET dtrain-shim)
    add_dependencies(${test} dtrain-shim dtrain-warm)
  endif()
endforeach()
