#include "models/hugging_face_rope.h"

namespace trireme {

namespace {

using Kind = RopeScaling::Kind;

constexpr double kMaxFactor = 1e6, kMaxTheta = 1e12;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;

std::vector<double> factors(HuggingFaceFields& fields, const char* key, std::int64_t head_dim) {
  const std::vector<double> list = fields.numbers(key, 1e-6, kMaxFactor);
  fields.require(static_cast<std::int64_t>(list.size()) == head_dim / 2, key,
                 "has " + std::to_string(list.size()) + " factors, head_dim " + std::to_string(head_dim) + " needs " +
                     std::to_string(head_dim / 2));
  return list;
}

RopeScaling read_scaling(HuggingFaceFields& fields, std::int64_t max_positions, std::int64_t head_dim) {
  const std::string type = fields.text("rope_type", fields.text("type", "default"));
  fields.text("type", "");  // the older name; says the same
  const double partial = fields.number("partial_rotary_factor", 0, 1, 1);
  if (partial != 1) fields.refuse("partial_rotary_factor", "is " + std::to_string(partial) + ": all of a head rotates");
  RopeScaling scaling;
  const auto original = [&] {
    return fields.integer("original_max_position_embeddings", 1, kMaxPositions, max_positions);
  };
  const auto factor = [&] {
    fields.require(fields.has("factor"), "factor", "is missing");
    return fields.number("factor", 1e-6, kMaxFactor, 1);
  };
  if (type == "default" || type == "mrope") {
    if (type == "mrope") fields.refuse("rope_type", "is \"mrope\"");
    fields.ignore({"factor", "original_max_position_embeddings"});
  } else if (type == "linear") {
    scaling.kind = Kind::linear;
    scaling.factor = factor();
    fields.ignore({"original_max_position_embeddings"});
  } else if (type == "dynamic") {
    scaling.kind = Kind::dynamic;
    scaling.factor = factor();
    scaling.original_max_positions = max_positions;
    fields.ignore({"original_max_position_embeddings"});
  } else if (type == "llama3") {
    scaling.kind = Kind::llama3;
    scaling.factor = factor();
    scaling.original_max_positions = original();
    scaling.low_frequency_factor = fields.number("low_freq_factor", 1e-6, kMaxFactor, 1);
    scaling.high_frequency_factor = fields.number("high_freq_factor", 1e-6, kMaxFactor, 4);
  } else if (type == "yarn") {
    scaling.kind = Kind::yarn;
    scaling.original_max_positions = original();
    scaling.factor = fields.has("factor")
                         ? factor()
                         : static_cast<double>(max_positions) / static_cast<double>(scaling.original_max_positions);
    scaling.beta_fast = fields.number("beta_fast", 1e-6, kMaxFactor, 32);
    scaling.beta_slow = fields.number("beta_slow", 1e-6, kMaxFactor, 1);
    scaling.mscale = fields.number("mscale", 0, kMaxFactor, 0);
    scaling.mscale_all_dim = fields.number("mscale_all_dim", 0, kMaxFactor, 0);
    scaling.truncate = fields.boolean("truncate", true);
    scaling.attention_factor = fields.find_number("attention_factor", 1e-6, kMaxFactor);
  } else if (type == "longrope") {
    scaling.kind = Kind::longrope;
    scaling.original_max_positions = original();
    scaling.factor = fields.has("factor")
                         ? factor()
                         : static_cast<double>(max_positions) / static_cast<double>(scaling.original_max_positions);
    scaling.attention_factor = fields.find_number("attention_factor", 1e-6, kMaxFactor);
    scaling.short_factors = factors(fields, "short_factor", head_dim);
    scaling.long_factors = factors(fields, "long_factor", head_dim);
  } else {
    fields.refuse("rope_type", "is \"" + type.substr(0, 80) + "\"");
  }
  return scaling;
}

Rope read_one(HuggingFaceFields& fields, double theta, std::int64_t max_positions, std::int64_t head_dim) {
  Rope rope;
  rope.theta = fields.number("rope_theta", 1e-6, kMaxTheta, theta);
  rope.scaling = read_scaling(fields, max_positions, head_dim);
  fields.finish();
  return rope;
}

}  // namespace

Rope read_rope(HuggingFaceFields& fields, double default_theta, std::int64_t max_positions, std::int64_t head_dim) {
  const double theta = fields.number("rope_theta", 1e-6, kMaxTheta, default_theta);
  const double partial = fields.number("partial_rotary_factor", 0, 1, 1);
  if (partial != 1) fields.refuse("partial_rotary_factor", "is " + std::to_string(partial) + ": all of a head rotates");
  std::optional<HuggingFaceFields> parameters = fields.object("rope_parameters");
  std::optional<HuggingFaceFields> scaling = fields.object("rope_scaling");
  if (scaling) return read_one(*scaling, theta, max_positions, head_dim);  // as transformers 5 decides between them
  if (parameters) return read_one(*parameters, theta, max_positions, head_dim);
  return {.theta = theta, .scaling = {}};
}

TwoRopes read_two_ropes(HuggingFaceFields& fields, std::int64_t max_positions, std::int64_t head_dim) {
  TwoRopes ropes;
  ropes.full.theta = fields.number("rope_theta", 1e-6, kMaxTheta, 1e6);
  ropes.windowed.theta = fields.number("rope_local_base_freq", 1e-6, kMaxTheta, 1e4);
  if (std::optional<HuggingFaceFields> parameters = fields.object("rope_parameters")) {
    if (auto full = parameters->object("full_attention")) {
      ropes.full = read_one(*full, ropes.full.theta, max_positions, head_dim);
    }
    if (auto windowed = parameters->object("sliding_attention")) {
      ropes.windowed = read_one(*windowed, ropes.windowed.theta, max_positions, head_dim);
    }
    parameters->finish();
  }
  if (std::optional<HuggingFaceFields> scaling = fields.object("rope_scaling")) {
    ropes.full = read_one(*scaling, ropes.full.theta, max_positions, head_dim);
  }
  return ropes;
}

nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling) {
  nlohmann::ordered_json json;
  const auto with_original = [&] { json["original_max_position_embeddings"] = scaling.original_max_positions; };
  switch (scaling.kind) {
    case Kind::none: return nullptr;
    case Kind::linear: return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case Kind::dynamic: return {{"rope_type", "dynamic"}, {"factor", scaling.factor}};
    case Kind::llama3:
      json = {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_frequency_factor},
              {"high_freq_factor", scaling.high_frequency_factor}};
      with_original();
      return json;
    case Kind::yarn:
      json = {{"rope_type", "yarn"},
              {"factor", scaling.factor},
              {"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"truncate", scaling.truncate}};
      if (scaling.mscale != 0) json["mscale"] = scaling.mscale;
      if (scaling.mscale_all_dim != 0) json["mscale_all_dim"] = scaling.mscale_all_dim;
      break;
    case Kind::longrope:
      json = {{"rope_type", "longrope"},
              {"factor", scaling.factor},
              {"short_factor", scaling.short_factors},
              {"long_factor", scaling.long_factors}};
      break;
  }
  if (scaling.attention_factor) json["attention_factor"] = *scaling.attention_factor;
  with_original();
  return json;
}

}  // namespace trireme
