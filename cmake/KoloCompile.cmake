# How Kolo's C is compiled: warnings, visibility, sanitizers, and sources built once per instruction set.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O3 -g")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")

function(kolo_compile_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -pedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wno-unused-parameter -fvisibility=hidden -ffp-contract=off -fno-math-errno)
  if(KOLO_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  if(KOLO_SANITIZE STREQUAL "address")
    set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  elseif(KOLO_SANITIZE STREQUAL "thread")
    set(flags -fsanitize=thread -fno-omit-frame-pointer)
  endif()
  target_compile_options(${target} PRIVATE ${flags})
  target_link_options(${target} PUBLIC ${flags})
endfunction()

# Sources named *.isa.c are compiled once per instruction set: baseline, avx2, avx512. Each copy sees
# KOLO_ISA (the set's name, for the one symbol it exports) and KOLO_VECTOR_BYTES (16, 32, 64). The
# choice between the copies is made at run time by the table that names them.
set(KOLO_ISA_LIST baseline avx2 avx512)
set(KOLO_ISA_baseline -DKOLO_VECTOR_BYTES=16)
set(KOLO_ISA_avx2 -DKOLO_VECTOR_BYTES=32 -mavx2 -mfma -mf16c)
set(KOLO_ISA_avx512 -DKOLO_VECTOR_BYTES=64 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
    -mprefer-vector-width=512)

# kolo_objects(NAME FOLDERS a b): one object library of src/a/*.c and src/b/*.c (and their subfolders).
function(kolo_objects name)
  cmake_parse_arguments(arg "" "" "FOLDERS" ${ARGN})
  add_library(${name} OBJECT)
  kolo_compile_options(${name})
  foreach(folder ${arg_FOLDERS})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.c)
    foreach(source ${sources})
      if(source MATCHES "/dnn_[^/]*\\.c$" AND NOT KOLO_DNNL)
        continue()
      endif()
      if(source MATCHES "\\.isa\\.c$")
        foreach(isa ${KOLO_ISA_LIST})
          if(NOT TARGET ${name}_${isa})
            add_library(${name}_${isa} OBJECT)
            kolo_compile_options(${name}_${isa})
            target_compile_options(${name}_${isa} PRIVATE ${KOLO_ISA_${isa}} -DKOLO_ISA=${isa})
            target_sources(${name} PRIVATE $<TARGET_OBJECTS:${name}_${isa}>)
          endif()
          target_sources(${name}_${isa} PRIVATE ${source})
        endforeach()
      else()
        target_sources(${name} PRIVATE ${source})
      endif()
    endforeach()
  endforeach()
endfunction()

# kolo_library(NAME OBJECTS): the shared library libNAME of an object library.
function(kolo_library name objects)
  add_library(${name} SHARED $<TARGET_OBJECTS:${objects}>)
  get_target_property(links ${objects} LINK_LIBRARIES)
  target_link_libraries(${name} PRIVATE ${links})
  kolo_compile_options(${name})
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE C)
  target_link_options(${name} PRIVATE -Wl,--no-undefined)
endfunction()
