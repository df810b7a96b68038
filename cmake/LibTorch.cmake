# LibTorch from the unpacked PyPI wheel: torch_cpu and c10 only. Not find_package(Torch): torch's include folder carries its own fmt and
# protobuf, which must come after the system's (-idirafter). The wheel has no Gloo headers: cmake/gloo has the few declarations.
set(TRIREME_TORCH "${TRIREME_DEPS}/torch")
if(NOT EXISTS "${TRIREME_TORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is missing at ${TRIREME_TORCH}: run scripts/setup.sh (or make test, which does)")
endif()
# The run paths are given below. CMake's own would warn, for each binary, that torch's libgomp comes before the compiler's; it must:
# there is to be one OpenMP runtime in a process.
set(CMAKE_SKIP_RPATH ON)
add_library(trireme_libtorch INTERFACE)
target_compile_options(trireme_libtorch INTERFACE
  "SHELL:-idirafter \"${TRIREME_TORCH}/include\"" "SHELL:-idirafter \"${TRIREME_TORCH}/include/torch/csrc/api/include\"")
target_compile_definitions(trireme_libtorch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_directories(trireme_libtorch INTERFACE "${TRIREME_TORCH}/lib")
target_link_libraries(trireme_libtorch INTERFACE torch_cpu c10)
target_link_options(trireme_libtorch INTERFACE
  "LINKER:-rpath-link,${TRIREME_TORCH}/lib" "LINKER:-rpath-link,${TRIREME_DEPS}/nvidia/cu13/lib")
# Programs too have torch's folder in their run path: for its libgomp, which is to be the one of the process.
add_link_options("LINKER:-rpath,${TRIREME_TORCH}/lib" "LINKER:-rpath,${TRIREME_DEPS}/nvidia/cu13/lib")
