"""From schedules to artefacts and runs: MSCCL files, MPI processes, a model in one process."""
