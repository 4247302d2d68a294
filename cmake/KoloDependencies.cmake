# Finds the libraries that Kolo depends on; an error names the Debian package of a missing one.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# kolo_need(VARIABLE package): stops and names the package to install when VARIABLE is not set.
function(kolo_need variable package)
  if(NOT ${variable})
    message(FATAL_ERROR "${package} is missing: run tools/install-deps.sh, or apt-get install ${package}")
  endif()
endfunction()

# kolo_pkg(TARGET module package): an imported target of a pkg-config module.
macro(kolo_pkg target module package)
  pkg_check_modules(${target} QUIET IMPORTED_TARGET ${module})
  kolo_need(${target}_FOUND ${package})
endmacro()

kolo_pkg(sodium libsodium libsodium-dev)
kolo_pkg(hwloc hwloc libhwloc-dev)
kolo_pkg(jansson jansson libjansson-dev)
kolo_pkg(fyaml libfyaml libfyaml-dev)
kolo_pkg(zlib zlib zlib1g-dev)
kolo_pkg(xxhash libxxhash libxxhash-dev)
find_path(RANDOM123_INCLUDE Random123/philox.h)
kolo_need(RANDOM123_INCLUDE librandom123-dev)

add_library(kolo_comm_dependencies INTERFACE)
target_link_libraries(kolo_comm_dependencies INTERFACE
  PkgConfig::sodium PkgConfig::xxhash Threads::Threads m)
target_include_directories(kolo_comm_dependencies INTERFACE ${RANDOM123_INCLUDE})
# PMIx, for jobs started by mpirun and srun: the build needs its headers; the library is loaded on demand.
if(KOLO_PMIX)
  pkg_check_modules(pmix QUIET pmix)
endif()
if(pmix_FOUND)
  target_include_directories(kolo_comm_dependencies SYSTEM INTERFACE ${pmix_INCLUDE_DIRS})
  target_compile_definitions(kolo_comm_dependencies INTERFACE KOLO_HAS_PMIX=1)
  target_link_libraries(kolo_comm_dependencies INTERFACE ${CMAKE_DL_LIBS})
elseif(KOLO_PMIX)
  message(STATUS "no PMIx: jobs cannot be started by mpirun or srun (libpmix-dev is missing)")
endif()
# UCX, linked only to a module.
if(KOLO_UCX)
  pkg_check_modules(ucx QUIET IMPORTED_TARGET ucx)
endif()

add_library(kolo_dependencies INTERFACE)
target_link_libraries(kolo_dependencies INTERFACE
  PkgConfig::zlib PkgConfig::jansson Threads::Threads m)
if(KOLO_DNNL)
  # Debian's CMake package of oneDNN requires OpenCL headers, and there is no .pc file.
  find_path(DNNL_INCLUDE dnnl.h)
  find_library(DNNL_LIBRARY dnnl)
  kolo_need(DNNL_LIBRARY libdnnl-dev)
  target_include_directories(kolo_dependencies INTERFACE ${DNNL_INCLUDE})
  target_link_libraries(kolo_dependencies INTERFACE ${DNNL_LIBRARY} gomp)
  target_compile_definitions(kolo_dependencies INTERFACE KOLO_HAS_DNNL=1)
endif()
# ONNX files: C code that protobuf-c generates of the message definition in libonnx-dev.
if(KOLO_ONNX)
  pkg_check_modules(protobuf_c QUIET IMPORTED_TARGET libprotobuf-c)
  find_program(PROTOC_C protoc-c)
  find_path(ONNX_PROTO onnx/onnx.proto)
  if(protobuf_c_FOUND AND PROTOC_C AND ONNX_PROTO)
    set(KOLO_ONNX_FOUND ON)
    set(onnx_folder ${PROJECT_BINARY_DIR}/onnx)
    file(MAKE_DIRECTORY ${onnx_folder})
    add_custom_command(OUTPUT ${onnx_folder}/onnx.pb-c.c ${onnx_folder}/onnx.pb-c.h
      COMMAND ${PROTOC_C} --proto_path=${ONNX_PROTO}/onnx --c_out=${onnx_folder} onnx.proto
      DEPENDS ${ONNX_PROTO}/onnx/onnx.proto VERBATIM)
    set_source_files_properties(${onnx_folder}/onnx.pb-c.c PROPERTIES COMPILE_OPTIONS "-w;-fvisibility=hidden")
    target_link_libraries(kolo_dependencies INTERFACE PkgConfig::protobuf_c)
    target_include_directories(kolo_dependencies SYSTEM INTERFACE ${onnx_folder})
    target_compile_definitions(kolo_dependencies INTERFACE KOLO_HAS_ONNX=1)
  else()
    message(STATUS "no ONNX: libprotobuf-c-dev, protobuf-c-compiler or libonnx-dev is missing")
  endif()
endif()

add_library(kolo_cli_dependencies INTERFACE)
target_link_libraries(kolo_cli_dependencies INTERFACE
  PkgConfig::fyaml PkgConfig::hwloc PkgConfig::jansson m)

# MPI libraries, each linked only to a module. KOLO_MPI_FOUND: the modules to build.
set(openmpi_module ompi-c)
set(mpich_module mpich)
set(KOLO_MPI_FOUND "")
if(KOLO_MPI STREQUAL "auto")
  set(wanted openmpi mpich)
elseif(KOLO_MPI)
  set(wanted ${KOLO_MPI})
else()
  set(wanted "")
endif()
foreach(mpi ${wanted})
  if(NOT DEFINED ${mpi}_module)
    message(FATAL_ERROR "KOLO_MPI is \"${KOLO_MPI}\": give openmpi, mpich, both in a list, auto or off")
  endif()
  pkg_check_modules(${mpi} QUIET IMPORTED_TARGET ${${mpi}_module})
  if(NOT KOLO_MPI STREQUAL "auto")
    kolo_need(${mpi}_FOUND lib${mpi}-dev)
  endif()
  if(${mpi}_FOUND)
    list(APPEND KOLO_MPI_FOUND ${mpi})
  endif()
endforeach()
