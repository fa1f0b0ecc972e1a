# Small static programs on musl's C library: they start in half the time that a static glibc takes, which looks at the CPU, relocates itself
# and touches three times as many pages before main(). Compiled against glibc's headers: docs/decisions/0014-shim-on-musl.md says why that holds,
# and what such a program may call.
set(musl_directory /usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-musl)
find_library(DTRAIN_MUSL NAMES libc.a PATHS ${musl_directory} NO_DEFAULT_PATH)
if(NOT DTRAIN_MUSL)
  message(FATAL_ERROR "could not find musl's libc.a in ${musl_directory}; install musl-dev (./tests/setup.sh installs all that is needed)")
endif()

function(dtrain_small_static name)
  target_compile_options(${name} PRIVATE -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-asynchronous-unwind-tables -fno-stack-protector
                                         -U_FORTIFY_SOURCE -fno-pie -fno-sanitize=all)
  target_link_options(${name} PRIVATE -fuse-ld=bfd -static -nostdlib -Wl,-z,noseparate-code -fno-sanitize=all ${musl_directory}/crt1.o ${musl_directory}/crti.o)
  target_link_libraries(${name} PRIVATE ${DTRAIN_MUSL} gcc ${musl_directory}/crtn.o)
endfunction()
