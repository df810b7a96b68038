#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/checkpoint.h"
#include "checkpoint/coverage.h"
#include "checkpoint/samples.h"
#include "checkpoint/signed_json.h"
#include "support/expect_error.h"

namespace trireme::checkpoint::testing {
namespace {

using nlohmann::ordered_json;
using trireme::testing::expect_error;

std::string hex(char digit) {
  return std::string(32, digit);
}

// One tensor in two files: the upper rows as a box, the lower as two boxes side by side.
Manifest sharded_manifest() {
  Manifest manifest = sample_manifest(3, 10);
  manifest.files["state-a3-rank0.safetensors"] = {4096, {hex('0')}};
  manifest.files["state-a3-rank1.safetensors"] = {(1 << 20) + 1, {hex('1'), hex('2')}};
  manifest.tensors = {{"w",
                       DType::f32,
                       {4, 6},
                       {{"state-a3-rank0.safetensors", "p", 0, 2, 0, 6, 100},
                        {"state-a3-rank1.safetensors", "p", 2, 4, 0, 5, 0},
                        {"state-a3-rank1.safetensors", "p", 2, 4, 5, 6, 10}}},
                      {"empty", DType::bf16, {0}, {}}};
  return manifest;
}

// The manifest's JSON, changed and signed again: what somebody who knows the digest can do.
std::string forged(const std::function<void(ordered_json&)>& change) {
  ordered_json record = ordered_json::parse(to_json_text(sharded_manifest()));
  record.erase("digest");
  change(record);
  return sign(record);
}

void refuses(int code, const std::function<void(ordered_json&)>& change) {
  const std::string text = forged(change);
  EXPECT_NE(expect_error(code, [&] { parse_manifest(text, "m.json"); }).find("m.json"), std::string::npos);
}

TEST(Manifest, SurvivesTheWayThroughText) {
  const std::string text = to_json_text(sharded_manifest());
  const Manifest manifest = parse_manifest(text, "m.json");
  EXPECT_EQ(to_json_text(manifest), text);
  EXPECT_EQ(manifest.tensors[0].entries[2].flat_begin, 10);
  EXPECT_EQ(manifest.files.at("state-a3-rank1.safetensors").block_digests[1], hex('2'));
  EXPECT_EQ(forged([](ordered_json&) {}), text);
}

TEST(Manifest, IsOrdinaryJsonForOthers) {
  const auto record = nlohmann::json::parse(to_json_text(sharded_manifest()));
  EXPECT_EQ(record.at("digest").get<std::string>().size(), 32u);
  EXPECT_EQ(record.at("format_version"), 1);
}

TEST(Manifest, IsRefusedWithoutItsDigest) {
  const std::string text = to_json_text(sharded_manifest());
  for (const std::string& damaged : {std::string(), std::string("{}"), text.substr(1), text + " ",
                                     "{" + text.substr(text.find('\n')), text.substr(0, text.size() - 1)}) {
    expect_error(5030, [&] { parse_manifest(damaged, "m.json"); });
  }
}

TEST(Manifest, OfAnotherVersionIsRefusedWithAWayOut) {
  const std::string text = forged([](ordered_json& record) { record["format_version"] = 2; });
  const std::string error = expect_error(5031, [&] { parse_manifest(text, "m.json"); });
  EXPECT_NE(error.find("version 2"), std::string::npos);
  EXPECT_NE(error.find("use the version"), std::string::npos);
}

// As earlier versions wrote it.
TEST(Manifest, ThatNamesNoOptimizerIsOfAdamw) {
  EXPECT_EQ(parse_manifest(forged([](ordered_json& record) { record["optimizer"] = "lion"; }), "m.json").optimizer,
            "lion");
  EXPECT_EQ(parse_manifest(forged([](ordered_json& record) { record.erase("optimizer"); }), "m.json").optimizer,
            "adamw");
  refuses(5033, [](ordered_json& record) { record["optimizer"] = nullptr; });
}

TEST(Manifest, ThatKnowsNoDynamicScaleIsOfAFixedOne) {
  const Manifest manifest = parse_manifest(forged([](ordered_json& record) {
                                             record.erase("loss_scale_hysteresis");
                                             record.erase("loss_scale_good_steps");
                                           }),
                                           "m.json");
  EXPECT_EQ(manifest.loss_scale_hysteresis, 0);
  refuses(5033, [](ordered_json& record) { record["loss_scale_hysteresis"] = nullptr; });
}

TEST(Manifest, NeedsEveryMember) {
  const ordered_json record = ordered_json::parse(to_json_text(sharded_manifest()));
  for (const auto& member : record.items()) {
    const std::string& key = member.key();
    if (key == "digest") continue;
    if (key == "optimizer" || key == "loss_scale_hysteresis") continue;  // above
    SCOPED_TRACE(key);
    refuses(5032, [&](ordered_json& forgery) { forgery.erase(key); });
    refuses(5033, [&](ordered_json& forgery) { forgery[key] = nullptr; });
  }
  for (const char* key : {"name", "dtype", "shape", "entries"}) {
    refuses(5032, [&](ordered_json& forgery) { forgery["tensors"][0].erase(key); });
  }
  for (const char* key : {"file", "stored", "rows", "columns", "flat_begin"}) {
    refuses(5032, [&](ordered_json& forgery) { forgery["tensors"][0]["entries"][1].erase(key); });
  }
}

TEST(Manifest, ChecksTypesAndBounds) {
  const auto set = [](const char* pointer, const ordered_json& value) {
    return [pointer, value](ordered_json& record) { record[ordered_json::json_pointer(pointer)] = value; };
  };
  for (const char* pointer :
       {"/step", "/good_steps", "/attempt", "/num_micro_batches", "/world_size", "/compute_threads",
        "/loss_scale_good_steps", "/loss_scale_hysteresis", "/tensors/0/entries/0/flat_begin"}) {
    SCOPED_TRACE(pointer);
    refuses(5034, set(pointer, -1));
    refuses(5034, set(pointer, 18446744073709551615ull));
    refuses(5033, set(pointer, 1.5));
    refuses(5033, set(pointer, "1"));
  }
  refuses(5034, set("/num_micro_batches", 0));
  refuses(5034, set("/attempt", 1ll << 31));
  refuses(5033, set("/data_position", -1));
  refuses(5033, set("/loss_scale", "x"));
  refuses(5034, set("/loss_scale", 0));
  refuses(5034, set("/good_steps", 11));  // more than there were
  refuses(5033, set("/tensors", 1));
  refuses(5033, set("/tensors/0", 1));
  refuses(5033, set("/tensors/0/dtype", "F33"));
  refuses(5033, set("/tensors/0/entries/0/rows", ordered_json::array({0})));
  refuses(5034, set("/tensors/0/entries/0/rows", ordered_json::array({0, 2, 4})));
  refuses(5034, set("/tensors/0/shape", ordered_json::array({4294967296ll, 4294967296ll})));
  refuses(5034, set("/tensors/1/shape", ordered_json::array({0, 4294967296ll, 4294967296ll})));
  refuses(5034, set("/tensors/0/entries/0/flat_begin", 1013));  // 12 elements behind it do not fit 4,096 bytes
  EXPECT_NO_THROW(parse_manifest(forged(set("/tensors/0/entries/0/flat_begin", 1012)), "m.json"));
  refuses(5034, set("/tensors/0/entries/0/flat_begin", 9223372036854775807ll));
  refuses(5034, set("/files/state-a3-rank0.safetensors/bytes", 1 << 20 | 1));
  refuses(5034, set("/files/state-a3-rank0.safetensors/bytes", 1ll << 62));
  refuses(5033, set("/files/state-a3-rank0.safetensors/block_digests", ordered_json::array({1})));
}

TEST(Manifest, NeverLeavesItsFolder) {
  for (const char* name :
       {"../state", "/etc/passwd", "a/b", "..", ".", ".hidden", "", "a\\b", "a b", "a\nb", "state\u00e9"}) {
    SCOPED_TRACE(name);
    refuses(5035, [&](ordered_json& record) { record["tensors"][0]["entries"][0]["file"] = name; });
    refuses(5035, [&](ordered_json& record) { record["files"][name] = record["files"]["state-a3-rank0.safetensors"]; });
  }
  refuses(5035, [](ordered_json& record) { record["tensors"][0]["entries"][0]["file"] = "other.safetensors"; });
}

TEST(Manifest, RefusesTensorsThatAreNotCoveredExactlyOnce) {
  const auto rows = [](int entry, int begin, int end) {
    return [=](ordered_json& record) { record["tensors"][0]["entries"][entry]["rows"] = {begin, end}; };
  };
  refuses(5036, rows(0, 0, 1));
  refuses(5036, rows(0, 0, 3));
  refuses(5036, rows(0, 2, 2));
  refuses(5036, rows(0, 2, 0));
  refuses(5036, rows(2, 2, 5));
  refuses(5036, [](ordered_json& record) { record["tensors"][0]["entries"].erase(1); });
  refuses(5036,
          [](ordered_json& record) { record["tensors"][0]["entries"].push_back(record["tensors"][0]["entries"][0]); });
  refuses(5036, [](ordered_json& record) { record["tensors"][1]["shape"] = {1}; });
}

TEST(Manifest, RefusesTensorsAndKeysThatAreThereTwice) {
  refuses(5037, [](ordered_json& record) { record["tensors"][1]["name"] = "w"; });
  const std::string text = forged([](ordered_json&) {});
  const std::string body = text.substr(text.find('\n') + 1);
  EXPECT_EQ(sign_body(body), text);
  expect_error(5033, [&] { parse_manifest(sign_body("\"step\": 11," + body), "m.json"); });
}

TEST(Manifest, RefusesTextBehindANul) {
  std::string body = forged([](ordered_json&) {});
  body = body.substr(body.find('\n') + 1) + '\0' + "}";
  expect_error(5033, [&] { parse_manifest(sign_body(body), "m.json"); });
}

TEST(Manifest, RefusesDeepNestingAtOnce) {
  expect_error(5033, [&] { parse_manifest(sign_body("\"tensors\": " + std::string(5'000'000, '[')), "m.json"); });
}

// Against counting element by element.
TEST(Coverage, AgreesWithCounting) {
  std::mt19937 random(7);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int covered = 0;
  for (int round = 0; round < 20000; ++round) {
    const Box whole{0, pick(1, 4), 0, pick(1, 4)};
    std::vector<Box> boxes{whole};
    for (int split = pick(0, 4); split > 0; --split) {  // cut exact covers ...
      const auto at = static_cast<std::size_t>(pick(0, static_cast<int>(boxes.size()) - 1));
      Box& box = boxes[at];
      Box rest = box;
      if (pick(0, 1) == 0 && box.rows() > 1) {
        box.row_end = rest.row_begin = box.row_begin + pick(1, static_cast<int>(box.rows()) - 1);
      } else if (box.columns() > 1) {
        box.column_end = rest.column_begin = box.column_begin + pick(1, static_cast<int>(box.columns()) - 1);
      } else {
        continue;
      }
      boxes.push_back(rest);
    }
    if (pick(0, 1) == 0) {  // ... and spoil half of them
      Box& box = boxes[static_cast<std::size_t>(pick(0, static_cast<int>(boxes.size()) - 1))];
      const std::int64_t by = pick(0, 1) == 0 ? 1 : -1;
      std::int64_t* const sides[] = {&box.row_begin, &box.row_end, &box.column_begin, &box.column_end};
      const int side = pick(0, 3), kind = pick(0, 2);
      if (kind == 0) {
        *sides[side] += by;
      } else if (kind == 1) {  // moved as a whole: what it overlaps is as large as the gap that it leaves
        *sides[side / 2 * 2] += by;
        *sides[side / 2 * 2 + 1] += by;
      } else {
        box = boxes[static_cast<std::size_t>(pick(0, static_cast<int>(boxes.size()) - 1))];
      }
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    std::map<std::pair<std::int64_t, std::int64_t>, int> count;
    bool exact = true;
    for (const Box& box : boxes) {
      exact = exact && box.rows() > 0 && box.columns() > 0;
      for (std::int64_t row = box.row_begin; row < box.row_end; ++row) {
        for (std::int64_t column = box.column_begin; column < box.column_end; ++column) ++count[{row, column}];
      }
    }
    for (const auto& [element, times] : count) {
      exact = exact && times == 1 && element.first >= 0 && element.first < whole.row_end && element.second >= 0 &&
              element.second < whole.column_end;
    }
    exact = exact && static_cast<std::int64_t>(count.size()) == whole.numel();
    ASSERT_EQ(!coverage_problem(boxes, whole).has_value(), exact) << "round " << round;
    covered += exact;
  }
  EXPECT_GT(covered, 5000);
  EXPECT_LT(covered, 15000);
}

}  // namespace
}  // namespace trireme::checkpoint::testing
