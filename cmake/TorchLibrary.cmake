# libtrireme_torch.so: all that is linked to LibTorch, in one library that is loaded when the first matrix product or the first peer
# needs it (src/base/torch_library.h). It has its own copy of the few objects of ours that it calls, and shows none of them.
file(GLOB torch_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*/torch/*.cpp)
add_library(trireme_torch SHARED ${torch_sources})
set_target_properties(trireme_torch PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
# The wheel has no Gloo headers; c10d's own include these few declarations.
target_include_directories(trireme_torch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/gloo)
target_link_libraries(trireme_torch PRIVATE trireme_comm trireme_libtorch OpenMP::OpenMP_CXX)
target_link_options(trireme_torch PRIVATE "LINKER:--exclude-libs,ALL")
if(TARGET trireme)
  add_dependencies(trireme trireme_torch)
endif()
