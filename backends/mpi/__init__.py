"""Schedules on real processes through MPI: launcher, worker, and the executor of one rank's part."""
