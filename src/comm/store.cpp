#include "comm/store.h"

#include <utility>

#include "base/torch_library.h"
#include "comm/store_table.h"

namespace trireme::comm {
namespace {

const StoreTable& table() {
  static const StoreTable& loaded = *static_cast<const StoreTable*>(torch_symbol("trireme_store_table"));
  return loaded;
}

}  // namespace

JobStorePtr make_agent_store(std::shared_ptr<AgentLink> link, std::chrono::milliseconds timeout) {
  return table().make_agent_store(std::move(link), timeout);
}

JobStorePtr make_tcp_store(const WorkerEnvironment& environment, std::chrono::milliseconds timeout) {
  return table().make_tcp_store(environment, timeout);
}

JobStorePtr clone_store(const JobStore& store) {
  return table().clone_store(store);
}

bool serves(const JobStore& store) {
  return table().serves(store);
}

void set_key(JobStore& store, const std::string& key, const std::string& value) {
  table().set_key(store, key, value);
}

std::optional<std::string> find_key(JobStore& store, const std::string& key) {
  return table().find_key(store, key);
}

void claim_key(JobStore& store, const std::string& key, const std::string& value) {
  table().claim_key(store, key, value);
}

std::unique_ptr<Communicator> make_gloo(const JobStore& store, const GlooOptions& options) {
  return table().make_gloo(store, options);
}

}  // namespace trireme::comm
