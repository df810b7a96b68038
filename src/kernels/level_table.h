// The kernels of a level as a table.
#pragma once
#include "kernels/level.h"

namespace trireme::kernels::TRIREME_LEVEL {

template <class T>
constexpr Table<T> make_table() {
  return {.rmsnorm_forward = rmsnorm_forward<T>,
          .rmsnorm_backward = rmsnorm_backward<T>,
          .layernorm_forward = layernorm_forward<T>,
          .layernorm_backward = layernorm_backward<T>,
          .rope = rope<T>,
          .glu_forward = glu_forward<T>,
          .glu_backward = glu_backward<T>,
          .activation_forward = activation_forward<T>,
          .activation_backward = activation_backward<T>,
          .bias_forward = bias_forward<T>,
          .bias_backward = bias_backward<T>,
          .scale = scale<T>,
          .soft_cap = soft_cap<T>,
          .dropout = dropout<T>,
          .add = add<T>,
          .attention_forward = attention_forward<T>,
          .attention_cached = attention_cached<T>,
          .attention_backward = attention_backward<T>,
          .embedding_forward = embedding_forward<T>,
          .embedding_backward = embedding_backward<T, T>,
          .embedding_backward_unrounded = embedding_backward<T, typename AccumulatorOf<T>::type>,
          .cross_entropy = cross_entropy<T>,
          .cross_entropy_loss = cross_entropy_loss<T>,
          .accumulate = accumulate<T>,
          .accumulate_all = accumulate_all<T>,
          .cast_from_float = cast_from_float<T>,
          .cast_to_float = cast_to_float<T>};
}

constexpr FlatTable make_flat_table() {
  return {.adamw = adamw,
          .adam = adam,
          .sgd = sgd,
          .adagrad = adagrad,
          .lion = lion,
          .sum_of_squares = sum_of_squares,
          .set_update = set_update,
          .first_in_window = first_in_window};
}

}  // namespace trireme::kernels::TRIREME_LEVEL
