// y[n] = w[ids[n]]. w [rows, C], where rows may be padded beyond the vocabulary; y [N, C]. ids are the caller's to
// check.
#pragma once
#include "chain/unit.h"

namespace trireme {

void embedding_forward(const std::int32_t* ids, const Tensor& w, const Tensor& y);
// Rows that share an id add up in order of n and are rounded once.
void embedding_backward(const std::int32_t* ids, const Tensor& dy, const GradientPlace& dw, const Tensor& workspace);
std::int64_t embedding_workspace_bytes(std::int64_t N, std::int64_t rows, std::int64_t C);

}  // namespace trireme
