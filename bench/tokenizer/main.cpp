// The C++ half of bench/tokenizer/run.py, with the same protocol as tests/tokenizer/oracle.py.
//
// trireme_tokenizer_bench documents SEED BYTES FILE     writes varied documents as records
// trireme_tokenizer_bench time TOKENIZER FILE           on each line read, encodes all: CPU seconds, number of ids
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer.h"
#include "tokenizer/varied_text.h"

namespace {

using trireme::data::Tokenizer;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure(const std::string& what, const std::string& file) {
  const std::unique_ptr<Tokenizer> tokenizer = trireme::data::load_tokenizer(what);
  const std::vector<std::string> documents = trireme::data::from_records(trireme::read_file(file));
  for (std::string line; std::getline(std::cin, line);) {
    const double begin = cpu_seconds();
    std::size_t count = 0;
    for (const std::string& document : documents) count += tokenizer->encode(document).size();
    std::cout << cpu_seconds() - begin << ' ' << count << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 4 && arguments[0] == "documents") {
      const auto documents = trireme::data::varied_documents(std::stoull(arguments[1]), std::stoull(arguments[2]));
      trireme::write_file_atomic(arguments[3], trireme::data::to_records(documents));
    } else if (arguments.size() == 3 && arguments[0] == "time") {
      measure(arguments[1], arguments[2]);
    } else {
      std::cerr << "usage: documents SEED BYTES FILE | time TOKENIZER FILE\n";
      return 2;
    }
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
  return 0;
}
