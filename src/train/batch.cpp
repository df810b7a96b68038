#include "train/batch.h"

#include <algorithm>

#include "base/error.h"

namespace trireme::train {
namespace {

using config::Plan;

constexpr const char *kGlobal = "training.global_batch_size", *kMicro = "training.micro_batch_size",
                     *kAccumulation = "training.gradient_accumulation_steps";

std::string text(std::int64_t value) {
  return std::to_string(value);
}

std::string origin_of(const Plan& plan, const std::string& key) {
  const auto origin = plan.origins.find(key);
  return origin == plan.origins.end() ? "default" : origin->second.place;
}

std::string place_or_default(const Plan& plan, const std::string& key) {
  return origin_of(plan, key) + ": " + key;
}

std::string ranks_text(const Ranks& ranks) {
  return text(ranks.count) + (ranks.count == 1 ? " rank" : " ranks") +
         (ranks.source.empty() ? "" : " (" + ranks.source + ")");
}

// The multiples of `unit` next to value, "12 or 16"; the first alone where value is below it.
std::string multiples_near(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = value / unit * unit;
  if (below == value) return text(value);
  return (below > 0 ? text(below) + " or " : "") + text(below + unit);
}

class Equation {
 public:
  Equation(const Plan& plan, const Ranks& ranks)
      : plan_(plan),
        ranks_(ranks),
        global_(*plan.training.global_batch_size),
        micro_(plan.training.micro_batch_size),
        accumulation_(plan.training.gradient_accumulation_steps) {}

  // What global must be a multiple of, or equal to where all three are given.
  void check() const {
    const std::int64_t unit = micro_.value_or(1) * accumulation_.value_or(1) * ranks_.count;
    if (micro_ ? global_ == unit : global_ % unit == 0) return;
    throw Error(2212, place_or_default(plan_, kGlobal), micro_ ? contradiction(unit) : remainder(unit),
                "with " + ranks_text(ranks_) + " use " + choices(unit));
  }

 private:
  std::string factors() const {
    std::string result;
    if (micro_) result += "micro_batch_size " + text(*micro_) + " (" + origin_of(plan_, kMicro) + ") x ";
    if (accumulation_) {
      result += "gradient_accumulation_steps " + text(*accumulation_) + " (" + origin_of(plan_, kAccumulation) + ") x ";
    }
    return result + ranks_text(ranks_);
  }

  std::string contradiction(std::int64_t product) const {
    return "global_batch_size " + text(global_) + " is not " + factors() + ": " + text(*micro_) + " x " +
           text(*accumulation_) + " x " + text(ranks_.count) + " = " + text(product);
  }

  std::string remainder(std::int64_t unit) const {
    return "global_batch_size " + text(global_) + " = micro_batch_size x " + factors() + ", but " + text(global_) +
           " is not a multiple of " + text(unit);
  }

  std::string choices(std::int64_t unit) const {
    std::string result = "global_batch_size " + multiples_near(micro_ ? unit : global_, unit);
    const auto add = [&](const char* name, std::int64_t others) {
      if (global_ % others == 0) result += ", or " + std::string(name) + " " + text(global_ / others);
    };
    if (micro_) {
      add("micro_batch_size", *accumulation_ * ranks_.count);
      add("gradient_accumulation_steps", *micro_ * ranks_.count);
    }
    const std::int64_t of_a_rank = micro_.value_or(1) * accumulation_.value_or(1);
    if (micro_ && global_ % of_a_rank == 0) result += "; or start " + text(global_ / of_a_rank) + " ranks";
    return result;
  }

  const Plan& plan_;
  const Ranks& ranks_;
  std::int64_t global_;
  std::optional<std::int64_t> micro_, accumulation_;
};

BatchSizes batch_of_checkpoint(const Plan& plan, const Ranks& ranks, const ResumeFacts& resume,
                               std::vector<std::string>& notices) {
  const std::int64_t saved = resume.num_micro_batches * resume.micro_batch_size;
  const std::optional<std::int64_t> wanted = plan.training.global_batch_size;
  if (wanted && *wanted != saved) {
    throw Error(
        2221, place_or_default(plan, kGlobal),
        "is " + text(*wanted) + ", but the checkpoint to resume from was made with " + text(saved) + " (" +
            text(resume.num_micro_batches) + " micro-batches of " + text(resume.micro_batch_size) + ")",
        "a run keeps its global batch: set it to " + text(saved) + ", or start anew with checkpoint.resume=never");
  }
  const bool is_too_coarse = ranks.count > resume.num_micro_batches && saved % ranks.count == 0;
  const std::int64_t micro =
      plan.training.micro_batch_size.value_or(is_too_coarse ? saved / ranks.count : resume.micro_batch_size);
  if (saved % micro != 0) {
    throw Error(2222, place_or_default(plan, kMicro),
                "is " + text(micro) + ", which does not divide the checkpoint's global batch of " + text(saved),
                "use " + text(resume.micro_batch_size) + " as before, or another divisor");
  }
  if (micro != resume.micro_batch_size) {
    notices.push_back("micro_batch_size was " + text(resume.micro_batch_size) + " and is now " + text(micro) +
                      ": the run goes on with the same global batch, but not with the same bits");
  }
  return {micro, saved / micro};
}

BatchSizes batch_of_plan(const Plan& plan, const Ranks& ranks) {
  const config::TrainingPlan& training = plan.training;
  const std::optional<std::int64_t> accumulation = training.gradient_accumulation_steps;
  if (!training.global_batch_size) {
    return {training.micro_batch_size.value_or(1), accumulation.value_or(1) * ranks.count};
  }
  const std::int64_t left = accumulation ? *training.global_batch_size / (*accumulation * ranks.count) : 1;
  const std::int64_t micro = training.micro_batch_size.value_or(left);
  return {micro, *training.global_batch_size / micro};
}

}  // namespace

BatchSizes batch_of(const Plan& plan, const Ranks& ranks, const std::optional<ResumeFacts>& resume,
                    std::vector<std::string>& notices) {
  const config::TrainingPlan& training = plan.training;
  const bool is_cut = resume && !training.micro_batch_size;  // as the checkpoint's, whatever the ranks
  if (training.global_batch_size && training.gradient_accumulation_steps && !is_cut) {
    Equation(plan, ranks).check();
  }
  const BatchSizes batch = resume ? batch_of_checkpoint(plan, ranks, *resume, notices) : batch_of_plan(plan, ranks);
  if (ranks.count > batch.num_micro_batches) {
    const std::int64_t global = batch.global_size(), micro = batch.micro_batch_size;
    throw Error(2210, place_or_default(plan, kMicro),
                "global batch " + text(global) + " = micro_batch_size " + text(micro) + " x " +
                    text(batch.num_micro_batches) + " micro-batches: too few for " + ranks_text(ranks),
                "start at most " + text(batch.num_micro_batches) + " ranks, or use a global_batch_size of at least " +
                    text(micro * ranks.count) + ", or a micro_batch_size of at most " +
                    text(std::max<std::int64_t>(1, global / ranks.count)));
  }
  return batch;
}

}  // namespace trireme::train
