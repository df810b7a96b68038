// Streams and events of the stand-in, as struct CudaLibrary wants them. Thread-safe.
//
// What is issued waits in its stream until somebody demands it, or until chance lets a stream go on: so it runs as late
// as the waits allow, and in many an order that they allow; TRIREME_TEST_SEED repeats it. A thread of the device's own
// runs it, with one compute thread, while whoever demands it waits. Whoever demands what waits for a flag lets all
// streams go on, and others issue.
#pragma once
#include <cstdint>
#include <functional>

namespace trireme::stand_in {

void* make_stream(bool high_priority);
void destroy_stream(void* stream);  // of which no work waits
void synchronize_stream(void* stream);
void wait(void* stream, void* event);
void* make_event(bool timed);
void destroy_event(void* event);
void record(void* event, void* stream);
void synchronize_event(void* event);
bool is_reached(void* event);  // chance says no where nobody has demanded it
void raise_flag(std::uint32_t* flag, std::uint32_t value);
void await_flag(const std::uint32_t* flag, std::uint32_t value);
double seconds_between(void* first, void* second);

void* set_stream(void* stream);
void* native_stream();
// To the calling thread's stream; what is called on the host does not reach the device's memory.
void issue(std::function<void()> work);
void call_on_host(std::function<void()> work);
// Before anything that waits.
void run_now(const std::function<void()>& work);

}  // namespace trireme::stand_in
