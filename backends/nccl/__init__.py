"""NCCL: a CUDA C++ project or a Python program for a schedule, and runs of it where GPUs are."""
