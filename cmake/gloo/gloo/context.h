// The few declarations of Gloo that c10d's ProcessGroupGloo.hpp needs. The LibTorch wheel carries the library but not
// its headers, and a distribution's are of another version; c10d only passes pointers to these types around.
#pragma once
#include <chrono>

namespace gloo {

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  void closeConnections();
};

}  // namespace gloo
