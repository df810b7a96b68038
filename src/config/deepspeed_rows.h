// The parts of DeepSpeed's dialect: tables of keys, and the rules that read those that mean something only together.
#pragma once
#include <initializer_list>
#include <string_view>
#include <vector>

#include "config/foreign.h"

namespace trireme::config {

inline ForeignKey sets(std::string_view name, std::string_view key, std::vector<std::string_view> names = {}) {
  return {.name = name, .key = key, .names = std::move(names)};
}

// A rule reads it.
inline ForeignKey ruled(std::string_view name, Type type, std::vector<std::string_view> names = {}) {
  return {.name = name, .type = type, .names = std::move(names)};
}

inline ForeignKey idle(std::string_view name, Type type, std::string_view reason,
                       std::vector<std::string_view> names = {}) {
  return {.name = name, .fate = Fate::no_effect, .type = type, .names = std::move(names), .doc = reason};
}

// Refused unless it is off; off: more words for it than false, 0, null and empty.
inline ForeignKey refused(std::string_view name, std::string_view reason, std::vector<std::string_view> off = {}) {
  return {.name = name, .fate = Fate::refused, .off = std::move(off), .doc = reason};
}

// Refused unless it has this value.
inline ForeignKey only(std::string_view name, std::string_view value, std::string_view reason) {
  return {.name = name, .fate = Fate::refused, .off = {value}, .off_alone = true, .doc = reason};
}

inline void add(std::vector<ForeignKey>& rows, const std::vector<ForeignKey>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

std::vector<ForeignKey> deepspeed_zero_keys();                     // deepspeed_zero.cpp
std::vector<ForeignKey> deepspeed_optimizer_and_scheduler_keys();  // deepspeed_optimizer.cpp
std::vector<ForeignKey> deepspeed_refused_sections();              // deepspeed_sections.cpp

void read_deepspeed_zero(Translation& file);
void read_deepspeed_optimizer(Translation& file);
void read_deepspeed_scheduler(Translation& file);

}  // namespace trireme::config
