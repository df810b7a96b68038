#include "launch/key_server.h"

#include "base/error.h"

namespace trireme::launch {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxWaiting = std::size_t{1} << 20;

comm::Message answer(std::int64_t id, const std::string& value) {
  return {.op = comm::Message::Op::value, .value = value, .id = id};
}

}  // namespace

// Overwritten values and answered questions stay counted: a job has few.
void KeyServer::add_bytes(std::size_t count) {
  bytes_ += count;
  if (bytes_ > kMaxBytes) throw Error(1115, "control channel", "more bytes of keys than a job can have");
}

std::vector<Reply> KeyServer::handle(int rank, const comm::Message& message) {
  using Op = comm::Message::Op;
  const auto found = values_.find(message.key);
  if (message.op != Op::set) {
    if (found != values_.end()) return {{rank, answer(message.id, found->second)}};
    if (message.op == Op::check) return {{rank, {.op = Op::missing, .id = message.id}}};
    if (waiting_.size() >= kMaxWaiting) throw Error(1115, "control channel", "more questions than a job can have");
    add_bytes(message.key.size());
    waiting_.emplace(message.key, Waiting{rank, message.id});
    return {};
  }
  add_bytes(message.key.size() + message.value.size());
  values_[message.key] = message.value;
  std::vector<Reply> replies;
  const auto [first, last] = waiting_.equal_range(message.key);
  for (auto question = first; question != last; ++question) {
    replies.push_back({question->second.rank, answer(question->second.id, message.value)});
  }
  waiting_.erase(first, last);
  return replies;
}

}  // namespace trireme::launch
