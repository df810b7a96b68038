// What libtrireme_cuda.so exports by name, for the binary that loads it at run time. Plain C: the two are built by
// different compilers.
#pragma once

extern "C" {

// "0.1.0 CUDA 13.0": the version of Trireme that the library was built from, which must be the binary's own, and the
// toolkit's. The string lives as long as the library is loaded.
const char* trireme_cuda_version();
}
