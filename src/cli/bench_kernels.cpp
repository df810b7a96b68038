// `trireme bench kernels`: the kernels of a device beside its copy.
#include <CLI/CLI.hpp>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "measure/device_kernels.h"

namespace trireme::cli {

int run_bench_kernels(Arguments arguments) {
  CLI::App app("Measure a CUDA device's kernels beside its copy.", "trireme bench kernels");
  std::string only, output;
  app.add_option("--only", only, "kernels whose name begins so (all)");
  app.add_option("--output", output, "JSON file to write");
  parse(app, arguments);
  const measure::DeviceKernels kernels = measure::measure_device_kernels(only);
  print(measure::to_table(kernels));
  if (!output.empty()) write_file_atomic(output, measure::to_json(kernels));
  flush_output();
  return 0;
}

}  // namespace trireme::cli
