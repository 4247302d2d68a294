# Filled in below: headers, libraries, command, pkg-config files and the CMake package.
