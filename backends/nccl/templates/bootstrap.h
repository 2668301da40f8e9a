// Who this process is and how it meets the others: one process per GPU.
//
// With MPI (compiled with -DSTRAGGLAR_MPI): mpirun starts the processes and carries the id. Without: the rank
// comes from --rank and --ranks or from what torchrun, mpirun or srun put into the environment, and the id
// through a file that all processes see. No port to choose.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#ifdef STRAGGLAR_MPI
#include <mpi.h>
#endif

#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "failure.h"

namespace stragglar {

// Ends the process with a message, unless it is gone in time. For calls of NCCL that wait on the host without an
// end if another rank is missing: connecting, and taking things down after a failure.
class Watchdog {
 public:
  Watchdog(const std::string& message, double seconds)
      : thread_([this, message, seconds] {
          std::unique_lock<std::mutex> lock(mutex_);
          if (ended_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return over_; })) return;
          std::fprintf(stderr, "%s\n", message.c_str());
          std::fflush(nullptr);
          std::_Exit(1);
        }) {}
  ~Watchdog() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;  // the last one: it uses the others
};

struct Place {
  int rank = -1, ranks = -1, local = -1;
};

// A number of 0 or more from an environment variable; -1: it is not set.
inline int number_in_environment(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return -1;
  char* rest = nullptr;
  const long value = std::strtol(text, &rest, 10);
  if (*rest || value < 0 || value > INT_MAX)
    throw Failure(std::string("the environment variable ") + name + " is not a number: " + text, 2);
  return static_cast<int>(value);
}

// What the launcher says: torchrun, Open MPI, MPICH, Slurm. All from one of them: mpirun inside a Slurm job
// sees the variables of both, and they differ.
inline Place place_in_environment() {
  constexpr const char* kNames[][3] = {
      {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};
  for (const auto& [rank, ranks, local] : kNames) {
    const Place place = {number_in_environment(rank), number_in_environment(ranks), number_in_environment(local)};
    if (place.rank >= 0 && place.ranks > 0) return place;
  }
  return {};
}

// Completes what the command line says by what the launcher says.
inline Place find_place(Place given) {
#ifdef STRAGGLAR_MPI
  MPI_Comm node;
  MPI_Comm_rank(MPI_COMM_WORLD, &given.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &given.ranks);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &given.local);
  MPI_Comm_free(&node);
#else
  if ((given.rank < 0) != (given.ranks < 0)) throw Failure("--rank and --ranks belong together", 2);
  if (given.rank < 0) given = place_in_environment();
  if (given.local < 0) given.local = number_in_environment("LOCAL_RANK");
#endif
  if (given.rank < 0)
    throw Failure("which rank is this? Start it with mpirun, srun or torchrun, or give --rank and --ranks", 2);
  if (given.rank >= given.ranks)
    throw Failure("rank " + std::to_string(given.rank) + " of " + std::to_string(given.ranks) + " does not exist", 2);
  return given;
}

// Makes this process's GPU the current one.
inline void take_device(const Place& place) {
  const std::string where = "rank " + std::to_string(place.rank);
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0)
    throw Failure(where + ": no GPU that can be used here: cudaGetDeviceCount: " + cudaGetErrorString(found), 4);
  const int local = place.local >= 0 ? place.local : place.rank % devices;
  if (local >= devices)
    throw Failure(where + ": needs GPU " + std::to_string(local) + ", but this machine has " +
                      std::to_string(devices) + ": NCCL wants one for each process", 4);
  check(cudaSetDevice(local), "cudaSetDevice", where);
}

// What is in an id file. A file of another kind, or of a run of another size, is refused.
struct IdFile {
  char magic[16] = "stragglar id 1\n";
  int32_t ranks = 0;
  ncclUniqueId id;
};

// Rank 0 writes the id under another name and renames it, so that nobody reads half of it.
inline void write_id(const std::string& file, const ncclUniqueId& id, int ranks) {
  if (std::ifstream(file).good())
    throw Failure("rank 0: " + file + " exists: an earlier run's? Others may read it; take a new name", 2);
  IdFile content;
  content.ranks = ranks;
  content.id = id;
  const std::string partial = file + ".partial";
  std::ofstream out(partial, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&content), sizeof content);
  out.close();
  if (out && std::rename(partial.c_str(), file.c_str()) == 0) return;
  std::remove(partial.c_str());
  throw Failure("rank 0: cannot write " + file, 2);
}

inline ncclUniqueId read_id(const std::string& file, const Place& place, double seconds) {
  const std::string where = "rank " + std::to_string(place.rank) + ": ";
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  do {
    IdFile content;
    std::ifstream in(file, std::ios::binary);
    if (in.read(reinterpret_cast<char*>(&content), sizeof content)) {
      if (std::memcmp(content.magic, IdFile().magic, sizeof content.magic) != 0)
        throw Failure(where + file + " is no id file of this program", 2);
      if (content.ranks != place.ranks)
        throw Failure(where + file + " is of a run of " + std::to_string(content.ranks) + " ranks, this one has " +
                          std::to_string(place.ranks), 2);
      return content.id;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  } while (std::chrono::steady_clock::now() < until);
  throw Failure(where + "rank 0 did not write " + file + " in time");
}

inline ncclUniqueId agree_on_id(const Place& place, const std::string& file, double seconds) {
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (place.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId", "rank 0");
#ifdef STRAGGLAR_MPI
  (void)file, (void)seconds;
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
#else
  if (place.ranks == 1) return id;
  if (file.empty()) throw Failure("--id-file FILE is needed: a new file that all ranks can see", 2);
  if (place.rank == 0) {
    write_id(file, id, place.ranks);
  } else {
    id = read_id(file, place, seconds);
  }
#endif
  return id;
}

// The communicator of all ranks.
inline ncclComm_t connect(const Place& place, const std::string& file, double seconds) {
  const std::string where = "rank " + std::to_string(place.rank);
  const ncclUniqueId id = agree_on_id(place, file, seconds);
  const std::string hint = file.empty() ? "" : ", or " + file + " is an earlier run's";
  Watchdog watchdog(where + ": not connected in time: another rank is missing" + hint, seconds);
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRank(&comm, place.ranks, id, place.rank);
#ifndef STRAGGLAR_MPI
  // Everybody has read it, or there was nothing to read: no later run may find it.
  if (place.rank == 0 && !file.empty()) std::remove(file.c_str());
#endif
  check(result, "ncclCommInitRank", where);
  return comm;
}

}  // namespace stragglar
