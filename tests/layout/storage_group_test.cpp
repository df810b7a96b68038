#include "layout/storage_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "support/expect_error.h"
#include "support/seed.h"

namespace trireme {
namespace {

using testing::expect_error;

// A model of random parameters and units: matrices of one to three logical tensors side by side or one above the other,
// with padding around them, vectors, frozen and decaying ones, and some that two units read.
struct RandomModel {
  std::vector<ParameterSpec> parameters;
  std::vector<std::vector<int>> unit_parameters;
  std::vector<std::string> unit_names;
};

class ModelMaker {
 public:
  explicit ModelMaker(unsigned seed) : random_(seed) {}

  RandomModel make() {
    RandomModel model;
    const int num_units = pick(1, 5);
    for (int unit = 0; unit < num_units; ++unit) {
      model.unit_names.push_back("units." + std::to_string(unit));
      model.unit_parameters.emplace_back();
      for (int i = pick(0, 6); i > 0; --i) {
        model.unit_parameters.back().push_back(static_cast<int>(model.parameters.size()));
        model.parameters.push_back(make_parameter("p" + std::to_string(model.parameters.size())));
      }
    }
    if (model.parameters.empty()) {
      model.unit_parameters[0].push_back(0);
      model.parameters.push_back(make_parameter("p0"));
    }
    for (int tie = pick(0, 2); tie > 0; --tie) {  // a second reader, or a second mention by the same one
      const int index = pick(0, static_cast<int>(model.parameters.size()) - 1);
      model.unit_parameters[static_cast<std::size_t>(pick(0, num_units - 1))].push_back(index);
    }
    return model;
  }

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

 private:
  ParameterSpec make_parameter(const std::string& name) {
    ParameterSpec parameter{.name = name, .decay = pick(0, 1) == 0, .trainable = pick(0, 4) != 0};
    if (pick(0, 2) == 0) {
      const int size = pick(1, 700);
      parameter.columns = size + pick(0, 3);
      parameter.logical = {{name + ".weight", {size}, {0, 1, 0, size}}};
      return parameter;
    }
    const bool below = pick(0, 1) == 0;  // logical tensors one below the other (merged QKV), or side by side
    std::int64_t row = 0, column = 0, rows = pick(1, 12), columns = pick(1, 40);
    for (int i = pick(1, 3); i > 0; --i) {
      (below ? rows : columns) = pick(1, 12);
      parameter.logical.push_back(
          {name + "." + std::to_string(i), {rows, columns}, {row, row + rows, column, column + columns}});
      (below ? row : column) += below ? rows : columns;
    }
    parameter.rows = (below ? row : rows) + pick(0, 2);
    parameter.columns = (below ? columns : column) + pick(0, 5);
    return parameter;
  }

  std::mt19937 random_;
};

// Where every logical element must lie, straight from the declarations: flat element -> (logical name, row, column).
using Place = std::tuple<std::string, std::int64_t, std::int64_t>;
std::map<std::int64_t, Place> expected_places(const StorageGroup& group, const std::vector<ParameterSpec>& parameters) {
  std::map<std::int64_t, Place> places;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const ParameterSpec& parameter = parameters[static_cast<std::size_t>(group.parameters[i])];
    for (const LogicalTensor& tensor : parameter.logical) {
      for (std::int64_t row = tensor.box.row_begin; row < tensor.box.row_end; ++row) {
        for (std::int64_t column = tensor.box.column_begin; column < tensor.box.column_end; ++column) {
          places[group.offsets[i] + row * parameter.columns + column] = {tensor.name, row - tensor.box.row_begin,
                                                                         column - tensor.box.column_begin};
        }
      }
    }
  }
  return places;
}

// Adds what the pieces cover, and fails if an element is there twice or outside [begin, end).
void add_pieces(const std::vector<Piece>& pieces, const std::vector<ParameterSpec>& parameters, std::int64_t begin,
                std::int64_t end, std::map<std::int64_t, Place>& places) {
  std::int64_t previous = -1;
  for (const Piece& piece : pieces) {
    EXPECT_GT(piece.flat_begin, previous) << "pieces are in the order of their first element";
    previous = piece.flat_begin;
    const auto& logical =
        parameters[static_cast<std::size_t>(piece.parameter)].logical[static_cast<std::size_t>(piece.logical)];
    ASSERT_GT(piece.box.numel(), 0);
    for (std::int64_t row = piece.box.row_begin; row < piece.box.row_end; ++row) {
      for (std::int64_t column = piece.box.column_begin; column < piece.box.column_end; ++column) {
        const std::int64_t flat =
            piece.flat_begin + (row - piece.box.row_begin) * piece.flat_row_stride + column - piece.box.column_begin;
        ASSERT_GE(flat, begin);
        ASSERT_LT(flat, end);
        ASSERT_TRUE(places.emplace(flat, Place{logical.name, row, column}).second) << "twice: " << flat;
      }
    }
  }
}

std::vector<StorageGroup> groups_of(const RandomModel& model, int num_slices) {
  return make_groups(model.parameters, model.unit_parameters, model.unit_names, num_slices);
}

// Runs the promise on many models, and says with which seed it broke.
template <class Promise>
void for_random_models(Promise&& promise) {
  const unsigned seed = testing::test_seed();
  for (unsigned i = 0; i < 60 && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("TRIREME_TEST_SEED=" + std::to_string(seed + i));
    ModelMaker maker(seed + i);
    const RandomModel model = maker.make();
    promise(model, maker);
  }
}

TEST(StorageGroups, HoldEveryParameterOnceAlignedAndApart) {
  for_random_models([](const RandomModel& model, ModelMaker& /*maker*/) {
    for (const int num_slices : {1, 2, 3, 7, 8}) {
      std::multiset<int> seen;
      for (const StorageGroup& group : groups_of(model, num_slices)) {
        EXPECT_EQ(group.numel % (kGroupAlignment * num_slices), 0);
        EXPECT_EQ(group.slice_numel() * num_slices, group.numel);
        EXPECT_EQ(group.offsets.size(), group.parameters.size());
        std::int64_t end = 0;
        for (std::size_t i = 0; i < group.parameters.size(); ++i) {
          const ParameterSpec& parameter = model.parameters[static_cast<std::size_t>(group.parameters[i])];
          EXPECT_EQ(group.offsets[i] % kGroupAlignment, 0);
          EXPECT_GE(group.offsets[i], end);
          EXPECT_LT(group.offsets[i], end + kGroupAlignment) << "no more padding than alignment asks for";
          end = group.offsets[i] + parameter.numel();
          EXPECT_EQ(parameter.decay, group.decay);
          EXPECT_EQ(parameter.trainable, group.trainable);
          seen.insert(group.parameters[i]);
        }
        EXPECT_LE(end, group.numel);
        EXPECT_LT(group.numel, end + kGroupAlignment * (num_slices + 1));
      }
      EXPECT_EQ(seen.size(), model.parameters.size());
      EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), model.parameters.size());
    }
  });
}

TEST(StorageGroups, KeepTiedParametersAloneAndUnitsInOrder) {
  for_random_models([](const RandomModel& model, ModelMaker& /*maker*/) {
    std::map<int, std::set<std::size_t>> readers;
    for (std::size_t unit = 0; unit < model.unit_parameters.size(); ++unit) {
      for (const int index : model.unit_parameters[unit]) readers[index].insert(unit);
    }
    std::size_t last_unit = 0;
    std::set<std::string> names;
    for (const StorageGroup& group : groups_of(model, 2)) {
      EXPECT_TRUE(names.insert(group.name).second) << "two groups are called " << group.name;
      const std::size_t first_reader = *readers.at(group.parameters[0]).begin();
      EXPECT_GE(first_reader, last_unit) << "groups come in the order of the units that read them first";
      last_unit = first_reader;
      for (const int index : group.parameters) {
        if (readers.at(index).size() > 1) {
          EXPECT_EQ(group.parameters.size(), 1u) << "a tied parameter shares a group";
        }
        EXPECT_EQ(*readers.at(index).begin(), first_reader) << "a group has parameters of two units";
      }
    }
  });
}

TEST(StorageGroups, SlicesOfAnyNumberHoldEveryLogicalElementExactlyOnce) {
  for_random_models([](const RandomModel& model, ModelMaker& /*maker*/) {
    for (const int num_slices : {1, 2, 3, 5, 8}) {
      for (const StorageGroup& group : groups_of(model, num_slices)) {
        std::map<std::int64_t, Place> places;
        for (int slice = 0; slice < num_slices; ++slice) {
          const std::int64_t begin = slice * group.slice_numel(), end = begin + group.slice_numel();
          add_pieces(locate(group, model.parameters, begin, end), model.parameters, begin, end, places);
        }
        EXPECT_EQ(places, expected_places(group, model.parameters)) << "padding is in no piece, all else in one";
      }
    }
  });
}

// Cuts anywhere, not only where slices end: ranges begin and end in the middle of rows and of logical tensors.
TEST(StorageGroups, CutsAnywhereHoldEveryLogicalElementExactlyOnce) {
  for_random_models([](const RandomModel& model, ModelMaker& maker) {
    for (const StorageGroup& group : groups_of(model, 1)) {
      std::set<std::int64_t> cuts{0, group.numel};
      for (int i = maker.pick(1, 40); i > 0; --i) cuts.insert(maker.pick(0, static_cast<int>(group.numel)));
      std::map<std::int64_t, Place> places;
      for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        add_pieces(locate(group, model.parameters, *cut, *std::next(cut)), model.parameters, *cut, *std::next(cut),
                   places);
      }
      EXPECT_EQ(places, expected_places(group, model.parameters));
    }
  });
}

// A 4 x 10 matrix of which columns 2..8 are a tensor: first partial row, whole rows, last partial row.
TEST(Locate, SplitsRangesThatBeginAndEndInsideRows) {
  const std::vector<ParameterSpec> parameters{
      {.name = "p", .rows = 4, .columns = 10, .logical = {{"t", {4, 6}, {0, 4, 2, 8}}}}};
  const std::vector<std::vector<int>> units{{0}};
  const std::vector<std::string> names{"u"};
  const StorageGroup group = make_groups(parameters, units, names, 1)[0];
  const auto boxes = [&](std::int64_t begin, std::int64_t end) {
    std::vector<Box> list;
    for (const Piece& piece : locate(group, parameters, begin, end)) list.push_back(piece.box);
    return list;
  };
  EXPECT_EQ(boxes(0, 40), (std::vector<Box>{{0, 4, 0, 6}}));
  EXPECT_EQ(boxes(5, 36), (std::vector<Box>{{0, 1, 3, 6}, {1, 3, 0, 6}, {3, 4, 0, 4}}));
  EXPECT_EQ(boxes(13, 16), (std::vector<Box>{{1, 2, 1, 4}})) << "inside one row";
  EXPECT_EQ(boxes(1, 38), (std::vector<Box>{{0, 4, 0, 6}})) << "only padding is cut off";
  EXPECT_EQ(boxes(12, 38), (std::vector<Box>{{1, 4, 0, 6}})) << "a row that begins where the tensor does is whole";
  EXPECT_EQ(boxes(8, 12), std::vector<Box>{}) << "padding at the end of one row and the begin of the next";
  EXPECT_EQ(boxes(15, 25), (std::vector<Box>{{1, 2, 3, 6}, {2, 3, 0, 3}})) << "no whole row between";
  EXPECT_EQ(boxes(40, 256), std::vector<Box>{});
  EXPECT_EQ(boxes(7, 7), std::vector<Box>{});
  const Piece piece = locate(group, parameters, 5, 36)[1];
  EXPECT_EQ(piece.flat_begin, 12);
  EXPECT_EQ(piece.flat_row_stride, 10);
}

TEST(Locate, RefusesRangesOutsideTheGroup) {
  const std::vector<ParameterSpec> parameters{{.name = "p", .columns = 10, .logical = {{"t", {10}, {0, 1, 0, 10}}}}};
  const std::vector<std::vector<int>> units{{0}};
  const std::vector<std::string> names{"u"};
  const StorageGroup group = make_groups(parameters, units, names, 1)[0];
  expect_error(1000, [&] { locate(group, parameters, -1, 5); });
  expect_error(1000, [&] { locate(group, parameters, 5, 257); });
  expect_error(1000, [&] { locate(group, parameters, 6, 5); });
}

TEST(MakeGroups, RefusesModelsThatForgetAParameter) {
  const std::vector<ParameterSpec> parameters{{.name = "p", .columns = 10}, {.name = "q", .columns = 10}};
  const std::vector<std::string> names{"u"};
  const std::vector<std::vector<int>> forgets{{0}}, invents{{0, 1, 2}}, whole{{1, 0}};
  expect_error(1000, [&] { make_groups(parameters, forgets, names, 1); });
  expect_error(1000, [&] { make_groups(parameters, invents, names, 1); });
  expect_error(1000, [&] { make_groups(parameters, whole, names, 0); });
  EXPECT_EQ(make_groups(parameters, whole, names, 1)[0].parameters, (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace trireme
