// Which way each matrix product of a run is computed on its devices (kernels/products.h). The ways of a run are those
// of the checkpoint that it goes on from; else those that this machine has measured before, which a file of
// cache_folder() keeps, one for a kind of card and a version of its library; else they are measured, by rank 0 for all
// ranks, so that bits depend neither on ranks nor on chance.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "comm/communicator.h"
#include "kernels/products.h"

namespace trireme::train {

struct ProductWays {
  std::string library;              // for what they hold: kernels::product_library()
  std::map<std::string, int> ways;  // by kernels::to_string(product)
  kernels::ProductChoices of(const std::vector<kernels::Product>& products) const;
};
// A JSON object {"library": text, "products": {product: number}}.
std::string to_json_text(const ProductWays& ways);
// Throws Error TR2296 for what is none.
ProductWays parse_product_ways(const std::string& text, const std::string& place);

// Products of a micro-batch that are worth measuring: a smaller one takes some 15 us, and a step has few of them.
constexpr double kWorthMeasuring = 1e10;  // flops
std::vector<kernels::Product> products_of(const Chain& chain, const BatchShape& shape,
                                          double least_flops = kWorthMeasuring);

// On the calling thread's stream. known: from elsewhere, and taken where the library is the same. What was measured is
// kept; a file that is wrong or cannot be written is told in a notice, no more.
ProductWays find_product_ways(const std::vector<kernels::Product>& products, const ProductWays& known,
                              std::vector<std::string>& notices);

// Collective: on the calling thread's stream, rank 0 finds the ways and all ranks compute in them from now on, those
// with another kind of card in the ways that their library advises.
ProductWays agree_on_products(const std::vector<kernels::Product>& products, const ProductWays& known,
                              comm::Communicator& comm, std::vector<std::string>& notices);

}  // namespace trireme::train
