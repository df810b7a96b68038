#include "train/product_ways.h"

#include <fmt/format.h>

#include <chrono>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "comm/collectives.h"

namespace trireme::train {
namespace {

constexpr int kBadWays = 2296, kNoMemory = 1301, kMostWays = 64;

std::filesystem::path file_of(const std::string& library) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  return folder / ("products-" + digest(std::string_view(library)).substr(0, 16) + ".json");
}

std::map<std::string, int> kept_ways(const std::filesystem::path& file, const std::string& library,
                                     std::vector<std::string>& notices) {
  std::error_code unknown;
  if (file.empty() || !std::filesystem::exists(file, unknown)) return {};
  try {
    const ProductWays kept = parse_product_ways(read_file(file), file.string());
    if (kept.library == library) return kept.ways;
  } catch (const Error& error) {
    notices.push_back(std::string("matrix products are measured anew: ") + error.what());
  }
  return {};
}

void keep_ways(const std::filesystem::path& file, const ProductWays& ways, std::vector<std::string>& notices) {
  if (file.empty()) return;
  try {
    std::filesystem::create_directories(file.parent_path());
    write_file_atomic(file, to_json_text(ways));
  } catch (const std::exception& error) {
    notices.push_back(std::string("what was measured of matrix products is not kept: ") + error.what());
  }
}

}  // namespace

kernels::ProductChoices ProductWays::of(const std::vector<kernels::Product>& products) const {
  kernels::ProductChoices choices;
  for (const kernels::Product& product : products) {
    if (const auto found = ways.find(kernels::to_string(product)); found != ways.end())
      choices[product] = found->second;
  }
  return choices;
}

std::string to_json_text(const ProductWays& ways) {
  return nlohmann::ordered_json{{"library", ways.library}, {"products", ways.ways}}.dump(2) + "\n";
}

ProductWays parse_product_ways(const std::string& text, const std::string& place) {
  const nlohmann::json object = parse_json_object(text, place, kBadWays);
  const auto fail = [&](const std::string& what) { throw Error(kBadWays, place, what, "delete it"); };
  const auto library = object.find("library"), products = object.find("products");
  if (library == object.end() || !library->is_string()) fail("has no text 'library'");
  if (products == object.end() || !products->is_object()) fail("has no object 'products'");
  ProductWays ways{library->get<std::string>(), {}};
  for (const auto& [product, way] : products->items()) {
    if (!way.is_number_unsigned() || way.get<std::uint64_t>() >= kMostWays) {
      fail("'" + product + "' is " + way.dump() + ", not a number below " + std::to_string(kMostWays));
    }
    ways.ways[product] = way.get<int>();
  }
  return ways;
}

std::vector<kernels::Product> products_of(const Chain& chain, const BatchShape& shape, double least_flops) {
  std::set<kernels::Product> all;
  for (const auto& unit : chain.units) {
    for (const kernels::Product& product : unit->products(shape)) {
      if (product.flops() >= least_flops) all.insert(product);
    }
  }
  return {all.begin(), all.end()};
}

ProductWays find_product_ways(const std::vector<kernels::Product>& products, const ProductWays& known,
                              std::vector<std::string>& notices) {
  ProductWays ways{kernels::product_library(), {}};
  if (known.library == ways.library) ways.ways = known.ways;
  const std::filesystem::path file = file_of(ways.library);
  ProductWays kept{ways.library, {}};
  if (!products.empty()) kept.ways = kept_ways(file, ways.library, notices);
  int measured = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const kernels::Product& product : products) {
    const std::string name = kernels::to_string(product);
    if (ways.ways.contains(name)) continue;
    if (!kept.ways.contains(name)) {
      try {
        kept.ways[name] = kernels::measure_product(product);
        ++measured;
      } catch (const Error& error) {
        if (error.code() != kNoMemory) throw;  // another run has the memory
      }
    }
    const auto found = kept.ways.find(name);
    ways.ways[name] = found == kept.ways.end() ? 0 : found->second;
  }
  if (measured > 0) {
    keep_ways(file, kept, notices);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    notices.push_back(fmt::format("the fastest ways of {} matrix products were measured in {:.1f} s{}", measured,
                                  seconds.count(), file.empty() ? "" : " and kept in " + file.string()));
  }
  return ways;
}

ProductWays agree_on_products(const std::vector<kernels::Product>& products, const ProductWays& known,
                              comm::Communicator& comm, std::vector<std::string>& notices) {
  std::string told;
  if (comm.rank() == 0) told = to_json_text(find_product_ways(products, known, notices));
  const ProductWays ways = parse_product_ways(comm::broadcast_text(comm, told), "rank 0");
  const bool is_same = ways.library == kernels::product_library();
  kernels::choose_products(is_same ? ways.of(products) : kernels::ProductChoices{});
  if (!is_same) {
    notices.push_back("this rank has other cards than rank 0: its products are computed as " +
                      kernels::product_library() + " advises");
  }
  return ways;
}

}  // namespace trireme::train
