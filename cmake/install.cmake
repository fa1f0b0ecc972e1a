include(GNUInstallDirs)
foreach(program dtraind dtrainctl)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
foreach(helper dtrain-shim dtrain-discover dtrain-rsh)
  if(TARGET ${helper})
    install(TARGETS ${helper} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/dtrain)
  endif()
endforeach()

install(FILES ${warm_sources} DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/dtrain)

# Units. They name programs where those are being installed: known only then, and written there at once: whoever installs may be root,
# whose files have no place in the build directory.
set(readable "OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ")
install(PROGRAMS ${CMAKE_SOURCE_DIR}/systemd/dtrain-hold DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/dtrain)
install(FILES ${CMAKE_SOURCE_DIR}/systemd/dtrain.slice ${CMAKE_SOURCE_DIR}/systemd/dtrain-units.target DESTINATION lib/systemd/system)
foreach(unit dtraind.service dtrain-tasks.service)
  install(CODE "set(bindir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
set(libexecdir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBEXECDIR}\")
configure_file(\"${CMAKE_SOURCE_DIR}/systemd/${unit}.in\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}\" @ONLY
  FILE_PERMISSIONS ${readable})
list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}\")")
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/systemd/logind.conf DESTINATION lib/systemd/logind.conf.d RENAME dtrain.conf)
install(FILES ${CMAKE_SOURCE_DIR}/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME dtrain.conf)
install(FILES ${CMAKE_SOURCE_DIR}/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME dtrain.conf)

# For people.
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/dtrainctl.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/dtraind.yaml.5 ${CMAKE_SOURCE_DIR}/docs/man/dtrain-job.5
  DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/dtraind.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES ${CMAKE_SOURCE_DIR}/config/dtraind.yaml ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
if(TARGET dtrainctl)
  # Written by the program that is installed, so that they cannot differ from it.
  foreach(completion bash:bash-completion/completions/dtrainctl zsh:zsh/vendor-completions/_dtrainctl
          fish:fish/vendor_completions.d/dtrainctl.fish)
    string(REPLACE ":" ";" completion ${completion})
    list(GET completion 0 shell)
    list(GET completion 1 file)
    cmake_path(GET file PARENT_PATH directory)
    install(DIRECTORY DESTINATION ${CMAKE_INSTALL_DATADIR}/${directory})
    install(CODE "set(file \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/${file}\")
execute_process(COMMAND \"$<TARGET_FILE:dtrainctl>\" completion ${shell} OUTPUT_FILE \"\$ENV{DESTDIR}\${file}\"
  COMMAND_ERROR_IS_FATAL ANY)
file(CHMOD \"\$ENV{DESTDIR}\${file}\" PERMISSIONS ${readable})
list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${file}\")")
  endforeach()
endif()

# What an administrator edits is copied into /etc once: by the package's postinst, or here, where nothing is being packaged.
install(FILES ${CMAKE_SOURCE_DIR}/config/minimal.yaml DESTINATION ${CMAKE_INSTALL_DATADIR}/dtrain RENAME dtraind.yaml)
install(FILES ${CMAKE_SOURCE_DIR}/systemd/dtraind.default DESTINATION ${CMAKE_INSTALL_DATADIR}/dtrain)
install(CODE "if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  file(INSTALL \"${CMAKE_SOURCE_DIR}/systemd/needrestart.conf\" DESTINATION /etc/needrestart/conf.d RENAME dtrain.conf)
  if(\"\$ENV{DESTDIR}\" STREQUAL \"\")
    if(NOT EXISTS /etc/dtrain/dtraind.yaml)
      file(INSTALL \"${CMAKE_SOURCE_DIR}/config/minimal.yaml\" DESTINATION /etc/dtrain RENAME dtraind.yaml)
    endif()
    if(NOT EXISTS /etc/default/dtraind)
      file(INSTALL \"${CMAKE_SOURCE_DIR}/systemd/dtraind.default\" DESTINATION /etc/default RENAME dtraind)
    endif()
  endif()
endif()")
