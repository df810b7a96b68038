# libtrireme_cuda.so: everything of the CUDA part, in one library that the binary loads when a CUDA device is asked for. Built where a
# toolkit of the CUDA version of the LibTorch wheel is found; linked without a GPU, hence also without the libraries that LibTorch's
# CUDA part needs in turn. The CPU build never needs it.
set(TRIREME_CUDA_MAJOR 13)
set(TRIREME_CUDA "AUTO" CACHE STRING "build libtrireme_cuda.so: AUTO (when nvcc is found) or OFF")
if(TRIREME_CUDA STREQUAL "OFF" OR TRIREME_SANITIZE)
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
find_program(TRIREME_NVCC nvcc PATHS /usr/local/cuda/bin)
if(NOT TRIREME_NVCC)
  message(STATUS "No CUDA toolkit: libtrireme_cuda.so is left out")
  return()
endif()
execute_process(COMMAND ${TRIREME_NVCC} --version OUTPUT_VARIABLE nvcc_version)
if(NOT nvcc_version MATCHES "release ${TRIREME_CUDA_MAJOR}\\.")
  message(STATUS "${TRIREME_NVCC} is not of CUDA ${TRIREME_CUDA_MAJOR}, as LibTorch is: libtrireme_cuda.so is left out")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${TRIREME_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
enable_language(CUDA)

# CUDA_STANDARD is 17 because CMake of Debian 12 does not know that nvcc 13 can do 20.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
add_library(trireme_cuda SHARED ${cuda_sources})
set_target_properties(trireme_cuda PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Shared LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_include_directories(trireme_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(trireme_cuda PRIVATE TRIREME_VERSION="${PROJECT_VERSION}")
target_link_directories(trireme_cuda PRIVATE "${TRIREME_TORCH}/lib")
target_link_options(trireme_cuda PRIVATE
  "LINKER:--no-as-needed" "LINKER:--unresolved-symbols=ignore-in-shared-libs"
  "LINKER:-rpath,${TRIREME_TORCH}/lib" "LINKER:-rpath,${TRIREME_DEPS}/nvidia/cu13/lib")
target_link_libraries(trireme_cuda PRIVATE torch_cuda c10_cuda torch_cpu c10)
