// The benchmark's command line: nccl-tests' letters, and who is late by how much.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap.h"
#include "failure.h"

namespace stragglar {

constexpr const char* kUsage =
    "usage: allreduce_bench [options]\n"
    "As in nccl-tests, with the same long names:\n"
    "  -b SIZE        smallest buffer, e.g. 1M (default 1M)\n"
    "  -e SIZE        largest buffer (default 64M)\n"
    "  -f FACTOR      from one size to the next (default 2)\n"
    "  -i SIZE        or this much more each time\n"
    "  -n N           measured repetitions (default 20)\n"
    "  -w N           repetitions before them (default 5)\n"
    "  -c 0|1         check every element of the last repetition (default 1)\n"
    "  -d TYPE        f16 bf16 f32 f64 i32 i64 (default f32)\n"
    "  -o OP          sum prod max min avg (default sum)\n"
    "  -G 0|1         launch everything as CUDA graphs (default 0)\n"
    "Of this program:\n"
    "  --late-by TIME how late, e.g. 5ms or 200us (default 0)\n"
    "  --late RANKS   who is late, e.g. 3 or 3,5 (default: whom the schedule expects)\n"
    "  --delays TIMES how late each rank is, one for each, e.g. 0,0,5ms,0; instead of the two above\n"
    "  --beside SIZE  reductions of this size run beside the messages (default 1M)\n"
    "  --pre native|p2p   a ReduceScatter at the start is NCCL's own, or the schedule's messages (default native)\n"
    "  --seed N       of the test data (default 0)\n"
    "  --json FILE    rank 0 also writes every repetition there\n"
    "  --time-limit TIME  for one repetition, or for the ranks to meet (default 60s)\n"
    "  --rank R --ranks N --id-file FILE   without MPI, torchrun or srun\n";

struct Options {
  size_t begin = 1 << 20, end = 64 << 20, step = 0;
  double factor = 2, late_by = 0, time_limit = 60;
  int repeat = 20, warmup = 5, seed = 0;
  bool check = true, graph = false, native = true;
  std::string type = "f32", op = "sum", json, id_file;
  std::vector<int> late;
  std::vector<double> delays;
  size_t beside = 1 << 20;
  Place place;
};

// What nccl-tests calls things -> what they are called here.
inline std::string short_name(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"--minbytes", "-b"}, {"--maxbytes", "-e"}, {"--stepfactor", "-f"},   {"--stepbytes", "-i"},
      {"--iters", "-n"},    {"--check", "-c"},    {"--warmup_iters", "-w"}, {"--datatype", "-d"},
      {"--op", "-o"},       {"--cudagraph", "-G"}, {"half", "f16"},         {"bfloat16", "bf16"},
      {"float", "f32"},     {"double", "f64"},    {"int32", "i32"},         {"int64", "i64"}};
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

inline const std::map<std::string, ncclDataType_t>& types() {
  static const std::map<std::string, ncclDataType_t> names = {
      {"f16", ncclFloat16}, {"bf16", ncclBfloat16}, {"f32", ncclFloat32},
      {"f64", ncclFloat64}, {"i32", ncclInt32},     {"i64", ncclInt64}};
  return names;
}

inline const std::map<std::string, ncclRedOp_t>& ops() {
  static const std::map<std::string, ncclRedOp_t> names = {
      {"sum", ncclSum}, {"prod", ncclProd}, {"max", ncclMax}, {"min", ncclMin}, {"avg", ncclAvg}};
  return names;
}

// A number and its unit: {5, "ms"} of "5ms".
inline std::pair<double, std::string> quantity(const std::string& text) {
  char* rest = nullptr;
  const double value = std::strtod(text.c_str(), &rest);
  if (rest == text.c_str() || !(value >= 0)) throw Failure("not a number of 0 or more: '" + text + "'", 2);
  return {value, rest};
}

inline size_t bytes_of(const std::string& text) {
  const auto [value, unit] = quantity(text);
  static const std::map<std::string, double> units = {
      {"", 1},          {"B", 1},         {"K", 1 << 10},   {"KiB", 1 << 10}, {"M", 1 << 20},
      {"MiB", 1 << 20}, {"G", 1 << 30}, {"GiB", 1 << 30}};
  if (!units.count(unit)) throw Failure("not a size: '" + text + "': use B, K, M or G", 2);
  return static_cast<size_t>(value * units.at(unit));
}

inline double seconds_of(const std::string& text) {
  const auto [value, unit] = quantity(text);
  static const std::map<std::string, double> units = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
  if (!units.count(unit)) throw Failure("not a time: '" + text + "': use s, ms or us", 2);
  return value * units.at(unit);
}

inline int integer_of(const std::string& text) {
  const auto [value, unit] = quantity(text);
  if (!unit.empty() || value > 1e9 || value != static_cast<int>(value)) throw Failure("not an integer: " + text, 2);
  return static_cast<int>(value);
}

inline bool native_of(const std::string& text) {
  if (text != "native" && text != "p2p") throw Failure("--pre is native or p2p, not " + text, 2);
  return text == "native";
}

// The parts of a list with commas.
inline std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t comma = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

inline void set_option(Options& options, const std::string& name, const std::string& value) {
  if (name == "-b") options.begin = bytes_of(value);
  else if (name == "-e") options.end = bytes_of(value);
  else if (name == "-f") options.factor = quantity(value).first;
  else if (name == "-i") options.step = bytes_of(value);
  else if (name == "-n") options.repeat = integer_of(value);
  else if (name == "-w") options.warmup = integer_of(value);
  else if (name == "-c") options.check = integer_of(value) != 0;
  else if (name == "-G") options.graph = integer_of(value) != 0;
  else if (name == "-d") options.type = short_name(value);
  else if (name == "-o") options.op = value;
  else if (name == "--late-by") options.late_by = seconds_of(value);
  else if (name == "--late") for (const std::string& part : parts_of(value)) options.late.push_back(integer_of(part));
  else if (name == "--delays")
    for (const std::string& part : parts_of(value)) options.delays.push_back(seconds_of(part));
  else if (name == "--beside") options.beside = bytes_of(value);
  else if (name == "--pre") options.native = native_of(value);
  else if (name == "--seed") options.seed = integer_of(value);
  else if (name == "--json") options.json = value;
  else if (name == "--time-limit") options.time_limit = seconds_of(value);
  else if (name == "--rank") options.place.rank = integer_of(value);
  else if (name == "--ranks") options.place.ranks = integer_of(value);
  else if (name == "--id-file") options.id_file = value;
  else throw Failure("unknown option " + name + "\n" + kUsage, 2);
}

inline Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    if (std::string(argv[i]) == "--help") throw Failure(kUsage, 0);
    if (i + 1 >= argc) throw Failure(std::string("option ") + argv[i] + " needs a value\n" + kUsage, 2);
    set_option(options, short_name(argv[i]), argv[i + 1]);
  }
  if (!types().count(options.type)) throw Failure("unknown type " + options.type + "\n" + kUsage, 2);
  if (!ops().count(options.op)) throw Failure("unknown reduction " + options.op + "\n" + kUsage, 2);
  if (options.factor <= 1 || options.repeat < 1 || options.end < options.begin)
    throw Failure("the factor must be above 1, -n 1 or more, and -e not below -b", 2);
  return options;
}

}  // namespace stragglar
