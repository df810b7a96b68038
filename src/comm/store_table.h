// What libtrireme_torch.so does for store.h, by the names there. store.cpp loads it for the first call.
#pragma once
#include "comm/store.h"

namespace trireme::comm {

struct StoreTable {
  decltype(&comm::make_agent_store) make_agent_store;
  decltype(&comm::make_tcp_store) make_tcp_store;
  decltype(&comm::clone_store) clone_store;
  decltype(&comm::serves) serves;
  decltype(&comm::set_key) set_key;
  decltype(&comm::find_key) find_key;
  decltype(&comm::claim_key) claim_key;
  decltype(&comm::make_gloo) make_gloo;
};

}  // namespace trireme::comm
