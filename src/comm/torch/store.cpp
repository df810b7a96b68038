// The keys of a job on c10d's stores: a TCPStore, or one of ours over the agent's socket.
#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "comm/network.h"
#include "comm/torch/c10d_store.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::uint8_t>;

// What ProcessGroupGloo needs of a store, served by the agent.
class AgentStore final : public c10d::Store {
 public:
  AgentStore(std::shared_ptr<AgentLink> link, milliseconds timeout) : Store(timeout), link_(std::move(link)) {}

  c10::intrusive_ptr<Store> clone() override { return c10::make_intrusive<AgentStore>(link_, timeout_); }
  void set(const std::string& key, const Bytes& value) override {
    link_->set(key, std::string(value.begin(), value.end()));
  }
  Bytes get(const std::string& key) override {
    const std::string value = await(key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    for (const std::string& key : keys) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      await(key, std::max(left, milliseconds(0)));
    }
  }
  bool check(const std::vector<std::string>& keys) override {
    return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return link_->check(key).has_value(); });
  }
  std::int64_t add(const std::string&, std::int64_t) override { refuse("add"); }
  bool deleteKey(const std::string&) override { refuse("deleteKey"); }
  std::int64_t getNumKeys() override { refuse("getNumKeys"); }

 private:
  [[noreturn]] static void refuse(const char* call) {
    C10_THROW_ERROR(NotImplementedError, std::string("the agent's store has no ") + call);
  }
  std::string await(const std::string& key, milliseconds timeout) {
    const auto value = link_->get(key, timeout);
    if (!value) C10_THROW_ERROR(DistStoreError, "no key " + key + " within " + std::to_string(timeout.count()) + " ms");
    return *value;
  }

  std::shared_ptr<AgentLink> link_;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string words_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  text = text.substr(0, text.find('\n'));
  const std::size_t bracket = text.find("] ");
  return text.starts_with('[') && bracket != std::string::npos ? text.substr(bracket + 2) : text;
}

namespace {

JobStorePtr make_agent_store_on_c10d(std::shared_ptr<AgentLink> link, milliseconds timeout) {
  return std::make_shared<JobStore>(JobStore{c10::make_intrusive<AgentStore>(std::move(link), timeout)});
}

JobStorePtr make_tcp_store_on_c10d(const WorkerEnvironment& environment, milliseconds timeout) {
  const bool serve = environment.rank == 0 && variable("TORCHELASTIC_USE_AGENT_STORE") != "True";
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.master_port);
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string address = environment.master_addr + ":" + std::to_string(environment.master_port);
  const std::string place = "rank " + std::to_string(environment.rank);
  // The server connects to itself by the name it was given; the others to the address that answered.
  const std::optional<std::string> host =
      serve ? environment.master_addr : await_listener(environment.master_addr, environment.master_port, timeout);
  if (!host) {
    throw Error(1110, place,
                "nobody served the store at " + address + " within " + std::to_string(timeout.count() / 1000) + " s",
                "is rank 0 running there? MASTER_ADDR and MASTER_PORT must be the same on all ranks");
  }
  // For its logs c10d looks up the name of whoever connects, in the one thread that serves all: a name server that does
  // not answer must not hold it up for ten seconds.
  ::setenv("RES_OPTIONS", "timeout:1 attempts:1", 0);
  const std::string what = serve ? "cannot serve the store at " : "cannot reach the store at ";
  auto tcp = with_torch_errors(serve ? 1114 : 1110, place, what + address,
                               [&] { return c10::make_intrusive<c10d::TCPStore>(*host, options); });
  const std::string prefix =
      "trireme/" + variable("TORCHELASTIC_RUN_ID") + "/" + variable("TORCHELASTIC_RESTART_COUNT");
  return std::make_shared<JobStore>(JobStore{c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(tcp)), serve});
}

JobStorePtr clone(const JobStore& store) {
  return with_torch_errors(1110, "store", "cannot connect again",
                           [&] { return std::make_shared<JobStore>(JobStore{store.keys->clone()}); });
}

bool serves_keys(const JobStore& store) {
  return store.serves;
}

void set(JobStore& store, const std::string& key, const std::string& value) {
  with_torch_errors(1110, "store", "cannot set a key",
                    [&] { store.keys->set(key, Bytes(value.begin(), value.end())); });
}

std::optional<std::string> find(JobStore& store, const std::string& key) {
  return with_torch_errors(1110, "store", "cannot read a key", [&]() -> std::optional<std::string> {
    if (!store.keys->check({key})) return std::nullopt;
    const Bytes value = store.keys->get(key);
    return std::string(value.begin(), value.end());
  });
}

void claim(JobStore& store, const std::string& key, const std::string& value) {
  with_torch_errors(1110, "store", "cannot set a key",
                    [&] { store.keys->compareSet(key, Bytes{}, Bytes(value.begin(), value.end())); });
}

}  // namespace

extern "C" const StoreTable trireme_store_table;
const StoreTable trireme_store_table{.make_agent_store = make_agent_store_on_c10d,
                                     .make_tcp_store = make_tcp_store_on_c10d,
                                     .clone_store = clone,
                                     .serves = serves_keys,
                                     .set_key = set,
                                     .find_key = find,
                                     .claim_key = claim,
                                     .make_gloo = make_gloo_on_c10d};

}  // namespace trireme::comm
