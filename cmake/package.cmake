# One Debian package, after a build: cpack -G DEB (in the build directory). Another revision of the same version:
# cpack -G DEB -D CPACK_DEBIAN_PACKAGE_RELEASE=2
set(CPACK_PACKAGE_NAME dtrain)
set(CPACK_PACKAGE_CONTACT "The dtrain project <root@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed training on your own machines, and its healing")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"An agent for each machine, which knows the others, keeps one ledger of all jobs
with them, starts their tasks and does what each needs when it dies; and the
client to submit jobs and look at them. Parameter-server and collective training
run unchanged. Tasks survive restarts and upgrades of the agent.")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libsystemd0 is loaded by the agent while it runs, which dpkg-shlibdeps does not see.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd (>= 252), libsystemd0 (>= 252), init-system-helpers")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(scripts ${CMAKE_SOURCE_DIR}/systemd/deb)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${scripts}/conffiles ${scripts}/postinst ${scripts}/prerm ${scripts}/postrm)
# Files outside of /usr: staged by DESTDIR, or they would go into the building machine's own /etc.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR DEB)
include(CPack)
