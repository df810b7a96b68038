// field<&Plan::training, &TrainingPlan::learning_rate>(): the schema's way to a field of the plan.
#pragma once
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "config/schema.h"

namespace trireme::config {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};

template <class T>
T from_value(const Key& key, const Value& value) {
  if constexpr (IsOptional<T>::value) {
    if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
    return from_value<typename T::value_type>(key, value);
  } else if constexpr (std::is_same_v<T, std::filesystem::path> || std::is_same_v<T, std::string>) {
    return std::holds_alternative<std::monostate>(value) ? T() : T(std::get<std::string>(value));
  } else if constexpr (std::is_enum_v<T>) {
    const auto found = std::find(key.choices.begin(), key.choices.end(), std::get<std::string>(value));
    TRIREME_CHECK(found != key.choices.end(), "a choice that is not in the schema");
    return static_cast<T>(found - key.choices.begin());
  } else if constexpr (IsList<T>::value) {
    T list;
    for (const std::string& word : std::get<Words>(value)) {
      list.push_back(from_value<typename T::value_type>(key, word));
    }
    return list;
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) {
    return std::get<T>(value);
  } else {
    static_assert(std::is_integral_v<T>);
    return static_cast<T>(std::get<std::int64_t>(value));
  }
}

template <class T>
Value to_value(const Key& key, const T& field) {
  if constexpr (IsOptional<T>::value) {
    return field ? to_value(key, *field) : Value();
  } else if constexpr (std::is_same_v<T, std::filesystem::path> || std::is_same_v<T, std::string>) {
    if (key.optional && field.empty()) return {};
    return std::string(field);
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(key.choices.at(static_cast<std::size_t>(field)));
  } else if constexpr (IsList<T>::value) {
    Words words;
    for (const auto& item : field) words.push_back(std::get<std::string>(to_value(key, item)));
    return words;
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) {
    return field;
  } else {
    static_assert(std::is_integral_v<T>);
    return static_cast<std::int64_t>(field);
  }
}

template <auto Member>
Field field() {
  return {
      .set = [](Plan& plan, const Key& key,
                const Value& value) { plan.*Member = from_value<std::decay_t<decltype(plan.*Member)>>(key, value); },
      .get = [](const Plan& plan, const Key& key) { return to_value(key, plan.*Member); }};
}

template <auto Block, auto Member>
Field field() {
  return {.set =
              [](Plan& plan, const Key& key, const Value& value) {
                plan.*Block.*Member = from_value<std::decay_t<decltype(plan.*Block.*Member)>>(key, value);
              },
          .get = [](const Plan& plan, const Key& key) { return to_value(key, plan.*Block.*Member); }};
}

}  // namespace trireme::config
