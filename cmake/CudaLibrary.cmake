# libtrireme_cuda.so: the kernels for CUDA devices and what manages them (src/kernels/cuda), in one library that the binary loads when a
# device is asked for. Built where a CUDA 13 toolkit with cuDNN is found; needs no device, and no LibTorch, whose start it would wait
# for. The CPU build never needs it.
set(TRIREME_CUDA_MAJOR 13)
set(TRIREME_CUDA "AUTO" CACHE STRING "build libtrireme_cuda.so: AUTO (when nvcc is found) or OFF")
if(TRIREME_CUDA STREQUAL "OFF" OR TRIREME_SANITIZE)
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)  # machine code of each, and PTX for what comes later
endif()
find_program(TRIREME_NVCC nvcc PATHS /usr/local/cuda/bin)
if(NOT TRIREME_NVCC)
  message(STATUS "No CUDA toolkit: libtrireme_cuda.so is left out")
  return()
endif()
execute_process(COMMAND ${TRIREME_NVCC} --version OUTPUT_VARIABLE nvcc_version)
if(NOT nvcc_version MATCHES "release ${TRIREME_CUDA_MAJOR}\\.")
  message(STATUS "${TRIREME_NVCC} is not of CUDA ${TRIREME_CUDA_MAJOR}: libtrireme_cuda.so is left out")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${TRIREME_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
enable_language(CUDA)
# CMake of Debian 12 does not know that nvcc 13 can do C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
find_package(CUDAToolkit REQUIRED)
find_path(TRIREME_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(TRIREME_CUDNN cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT TRIREME_CUDNN_INCLUDE OR NOT TRIREME_CUDNN)
  message(STATUS "No cuDNN beside the CUDA toolkit: libtrireme_cuda.so is left out")
  return()
endif()

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cpp)
add_library(trireme_cuda SHARED ${cuda_sources})
set_target_properties(trireme_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Shared LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_include_directories(trireme_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_include_directories(trireme_cuda SYSTEM PRIVATE ${TRIREME_DEPS}/include ${TRIREME_CUDNN_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(trireme_cuda PRIVATE TRIREME_LEVEL=cuda TRIREME_VERSION="${PROJECT_VERSION}")
# No fused multiply-adds but those that are written.
target_compile_options(trireme_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Werror>")
# cuDNN's headers take a minute and a half at -O2; what they do is done once a shape.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cuda/fused_attention.cpp PROPERTIES
  COMPILE_OPTIONS -O1 SKIP_UNITY_BUILD_INCLUSION ON)
target_link_options(trireme_cuda PRIVATE "LINKER:--exclude-libs,ALL" "LINKER:-rpath,$ORIGIN")
target_link_libraries(trireme_cuda PRIVATE trireme_layout CUDA::cudart CUDA::cublasLt ${TRIREME_CUDNN})
