include(GNUInstallDirs)
foreach(program dtraind dtrainctl)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
foreach(helper dtrain-shim dtrain-discover)
  if(TARGET ${helper})
    install(TARGETS ${helper} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/dtrain)
  endif()
endforeach()

# Units. They name programs where those are being installed: known only then.
install(PROGRAMS ${CMAKE_SOURCE_DIR}/systemd/dtrain-hold DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/dtrain)
foreach(unit dtraind.service dtrain-tasks.service)
  install(CODE "set(bindir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
set(libexecdir \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBEXECDIR}\")
configure_file(\"${CMAKE_SOURCE_DIR}/systemd/${unit}.in\" \"${CMAKE_BINARY_DIR}/${unit}\" @ONLY)")
  install(FILES ${CMAKE_BINARY_DIR}/${unit} DESTINATION lib/systemd/system)
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/systemd/dtrain.slice DESTINATION lib/systemd/system)
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
  set(completion ${CMAKE_BINARY_DIR}/completion)
  foreach(shell bash zsh fish)
    install(CODE "file(MAKE_DIRECTORY \"${completion}\")
execute_process(COMMAND \"$<TARGET_FILE:dtrainctl>\" completion ${shell} OUTPUT_FILE \"${completion}/${shell}\"
  COMMAND_ERROR_IS_FATAL ANY)")
  endforeach()
  install(FILES ${completion}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME dtrainctl)
  install(FILES ${completion}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _dtrainctl)
  install(FILES ${completion}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME dtrainctl.fish)
endif()

# Where the agent and the unit look for it, below /usr only; what is there already is an administrator's.
install(CODE "if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  if(NOT EXISTS \"\$ENV{DESTDIR}/etc/dtrain/dtraind.yaml\")
    file(INSTALL \"${CMAKE_SOURCE_DIR}/config/minimal.yaml\" DESTINATION /etc/dtrain RENAME dtraind.yaml)
  endif()
  if(NOT EXISTS \"\$ENV{DESTDIR}/etc/default/dtraind\")
    file(INSTALL \"${CMAKE_SOURCE_DIR}/systemd/dtraind.default\" DESTINATION /etc/default RENAME dtraind)
  endif()
endif()")
