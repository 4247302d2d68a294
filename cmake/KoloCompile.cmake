# Compiler options: warnings, visibility, sanitizers, and sources compiled once per instruction set.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Stack traces and profiles need line numbers (-g1); locations of variables take a third of the compile time.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
if(KOLO_SANITIZE)
  set(CMAKE_C_FLAGS_DEBUG "-O1 -g1")
endif()

# kolo_compile_options(TARGET): warnings, include paths and sanitizers.
function(kolo_compile_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -pedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Werror=implicit-function-declaration
    -Wno-unused-parameter -fvisibility=hidden -fno-semantic-interposition
    -ffp-contract=off -fno-math-errno
    # Error messages name files relative to the tree.
    -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  if(KOLO_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  if(KOLO_SANITIZE STREQUAL "address")
    set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  elseif(KOLO_SANITIZE STREQUAL "thread")
    # gcc warns about fences, which this sanitizer does not model.
    set(flags -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  elseif(KOLO_SANITIZE)
    message(FATAL_ERROR "KOLO_SANITIZE is \"${KOLO_SANITIZE}\": give address, thread or nothing")
  endif()
  target_compile_options(${target} PRIVATE ${flags})
  target_link_options(${target} PUBLIC ${flags})
  if(KOLO_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# Sources named *.isa.c are compiled once per instruction set: baseline, and on x86-64 avx2 and avx512.
# Each copy sees KOLO_ISA (the set's name, for the one symbol it exports) and KOLO_VECTOR_BYTES (16, 32,
# 64). All sources see KOLO_ISA_HAS_AVX2 and so on for the sets that have copies; src/base/isa.h picks the
# copy at run time.
set(KOLO_ISA_LIST baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  list(APPEND KOLO_ISA_LIST avx2 avx512)
endif()
# Sanitizer builds run where they are built, so they leave out copies that this processor cannot run. The
# thread sanitizer checks synchronization, for which one copy is enough.
if(KOLO_SANITIZE STREQUAL "thread")
  set(KOLO_ISA_LIST baseline)
elseif(KOLO_SANITIZE AND "avx512" IN_LIST KOLO_ISA_LIST AND NOT CMAKE_CROSSCOMPILING)
  include(CheckCSourceRuns)
  check_c_source_runs("int main(void) { return !__builtin_cpu_supports(\"avx512f\"); }" KOLO_RUNS_AVX512)
  if(NOT KOLO_RUNS_AVX512)
    list(REMOVE_ITEM KOLO_ISA_LIST avx512)
  endif()
endif()
foreach(isa ${KOLO_ISA_LIST})
  string(TOUPPER ${isa} constant)
  add_compile_definitions(KOLO_ISA_HAS_${constant}=1)
endforeach()
list(LENGTH KOLO_ISA_LIST isa_count)
add_compile_definitions(KOLO_ISA_COPY_COUNT=${isa_count})
set(KOLO_ISA_baseline -DKOLO_VECTOR_BYTES=16 -Wno-psabi)
set(KOLO_ISA_avx2 -DKOLO_VECTOR_BYTES=32 -mavx2 -mfma -mf16c)
set(KOLO_ISA_avx512 -DKOLO_VECTOR_BYTES=64 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
    -mprefer-vector-width=512)

if(KOLO_FUZZ) # the fuzzed code reads files; clang takes minutes for instrumented vector code
  set(isa_options -O0 -fno-sanitize=all)
elseif(KOLO_SANITIZE STREQUAL "address") # the address sanitizer also reports what these checks do
  set(isa_options -fno-sanitize=null,object-size,pointer-overflow)
  # One region for register allocation: half the compile time. clang does not have the option.
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    list(APPEND isa_options -fira-region=one)
  endif()
  # GCC misaligns 64-byte vectors in the frames that it keeps to detect use after return (PR 110027).
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13.3)
    list(APPEND KOLO_ISA_avx512 --param=asan-use-after-return=0)
  endif()
endif()

# Sanitizer builds spend most of their time in the reference kernels and in address computations, which
# -O2 speeds up. Not so the *.isa.c: there the compiler would take longer than all tests gain.
if(KOLO_SANITIZE AND NOT KOLO_FUZZ)
  file(GLOB loops CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/op/*.c ${PROJECT_SOURCE_DIR}/src/kernel/ref/*.c
    ${PROJECT_SOURCE_DIR}/src/tensor/*.c ${PROJECT_SOURCE_DIR}/src/base/rng.c)
  set_source_files_properties(${loops} PROPERTIES COMPILE_OPTIONS -O2)
endif()

# kolo_isa_sources(OBJECTS SOURCE): adds the copies of one *.isa.c to an object library. A copy is a
# generated file that includes the source, because a target compiles a source only once.
function(kolo_isa_sources objects source)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
  foreach(isa ${KOLO_ISA_LIST})
    string(REGEX REPLACE "\\.isa\\.c$" ".${isa}.c" copy ${PROJECT_BINARY_DIR}/isa/${path})
    file(CONFIGURE OUTPUT ${copy} CONTENT "#include \"${path}\"\n")
    set_source_files_properties(${copy} PROPERTIES
      COMPILE_OPTIONS "${isa_options};${KOLO_ISA_${isa}};-DKOLO_ISA=${isa}")
    target_sources(${objects} PRIVATE ${copy})
  endforeach()
endfunction()

# kolo_objects(NAME FOLDERS a b): an object library of src/a/**/*.c and src/b/**/*.c. Leaves out folders
# named dnn without oneDNN, those that read ONNX files without protobuf-c, and *_module.c, which are loaded
# at run time.
function(kolo_objects name)
  cmake_parse_arguments(arg "" "" "FOLDERS" ${ARGN})
  add_library(${name} OBJECT)
  kolo_compile_options(${name})
  foreach(folder ${arg_FOLDERS})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.c)
    list(FILTER sources EXCLUDE REGEX "/[^/]*_module\\.c$")
    if(NOT KOLO_DNNL)
      list(FILTER sources EXCLUDE REGEX "/dnn/")
    endif()
    if(NOT KOLO_ONNX_FOUND)
      list(FILTER sources EXCLUDE REGEX "/onnx/(import|export)/")
    elseif(folder MATCHES "^onnx")
      list(APPEND sources ${onnx_folder}/onnx.pb-c.c)
    endif()
    if(KOLO_EVENTS_FOUND AND folder STREQUAL "train")
      list(APPEND sources ${events_folder}/event.pb-c.c)
    endif()
    if(NOT KOLO_IMAGES_FOUND)
      list(FILTER sources EXCLUDE REGEX "/images/(jpeg[a-z_]*|png)\\.c$")
    endif()
    foreach(source ${sources})
      if(source MATCHES "\\.isa\\.c$")
        kolo_isa_sources(${name} ${source})
      else()
        target_sources(${name} PRIVATE ${source})
      endif()
    endforeach()
  endforeach()
endfunction()

# Kernels are parallelized with OpenMP on gcc's runtime, which oneDNN also uses.
if(KOLO_DNNL AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/kernel/parallel.c
    PROPERTIES COMPILE_OPTIONS -fopenmp)
endif()

# kolo_library(NAME OBJECTS): a shared library libNAME of an object library.
function(kolo_library name objects)
  add_library(${name} SHARED $<TARGET_OBJECTS:${objects}>)
  get_target_property(links ${objects} LINK_LIBRARIES)
  target_link_libraries(${name} PRIVATE ${links})
  kolo_compile_options(${name})
  set_target_properties(${name} PROPERTIES
    VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE C BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
  if(NOT KOLO_SANITIZE) # with clang the program brings the sanitizer's runtime
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# kolo_module(NAME SOURCE LIBRARY): libNAME.so, which libkolo-comm loads on demand.
function(kolo_module name source library)
  add_library(${name} MODULE ${source})
  kolo_compile_options(${name})
  target_link_libraries(${name} PRIVATE kolo-comm ${library})
  target_include_directories(${name} SYSTEM PRIVATE
    $<TARGET_PROPERTY:${library},INTERFACE_INCLUDE_DIRECTORIES>)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN")
endfunction()
