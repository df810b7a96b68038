#include "memory/count/count.h"

namespace trireme::testing {

bool counts_memory() {
  return false;
}
void count_for_rank(int) {}
Counted counted_now(int) {
  return {};
}
Counted counted_most(int) {
  return {};
}
void forget_most() {}

}  // namespace trireme::testing
