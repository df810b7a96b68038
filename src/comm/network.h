// The two questions that joining has for the network. Host names, IPv4 and IPv6 addresses.
#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace trireme::comm {

// The address of this machine from which the host is reached, as numbers: where peers can reach this rank in turn.
// Throws Error TR3052 when the host cannot be resolved or there is no route.
std::string local_address_toward(const std::string& host);

// Waits until somebody listens there; the address that answered, as numbers, or empty at the limit. c10d's own clients
// wait a second between their tries.
std::optional<std::string> await_listener(const std::string& host, int port, std::chrono::milliseconds limit);

}  // namespace trireme::comm
