// What MKL takes for itself lies in blocks of our own (mkl_memory.cpp).
#pragma once

namespace trireme::kernels {

void release_mkl_memory();  // all that no product under way uses

}  // namespace trireme::kernels
