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
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>

#include "failure.h"

namespace stragglar {

struct Place {
  int rank = -1, ranks = -1, local = -1;
};

// The first of these environment variables that is set, as a number; -1: none.
inline int from_environment(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return -1;
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
#endif
  if (given.rank < 0) given.rank = from_environment({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"});
  if (given.ranks < 0)
    given.ranks = from_environment({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  if (given.local < 0)
    given.local = from_environment({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"});
  if (given.rank < 0 || given.ranks < 0)
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

// Rank 0 writes the id under another name and renames it, so that nobody reads half of it.
inline void write_id(const std::string& file, const ncclUniqueId& id) {
  if (std::ifstream(file).good())
    throw Failure("rank 0: " + file + " exists: an earlier run's? Others may read it; take a new name", 2);
  const std::string partial = file + ".partial";
  std::ofstream out(partial, std::ios::binary);
  out.write(id.internal, sizeof id.internal);
  out.close();
  if (!out || std::rename(partial.c_str(), file.c_str()) != 0) throw Failure("rank 0: cannot write " + file, 2);
}

inline ncclUniqueId read_id(const std::string& file, const Place& place, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    ncclUniqueId id;
    std::ifstream in(file, std::ios::binary);
    if (in.read(id.internal, sizeof id.internal)) return id;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  throw Failure("rank " + std::to_string(place.rank) + ": rank 0 did not write " + file + " in time");
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
    write_id(file, id);
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
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, place.ranks, id, place.rank), "ncclCommInitRank", where);
  if (place.rank == 0 && !file.empty()) std::remove(file.c_str());  // everybody has read it
  return comm;
}

}  // namespace stragglar
