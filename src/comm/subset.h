// Some ranks of a communicator as a communicator of their own.
#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace trireme::comm {

// ranks: of `all`, in the order that they have here; the caller is one of them. Its transfers count among those of
// `all`, which must outlive it and is used by one thread at a time as ever. abort() is that of `all`.
std::unique_ptr<Communicator> make_subset(Communicator& all, std::vector<int> ranks);

}  // namespace trireme::comm
