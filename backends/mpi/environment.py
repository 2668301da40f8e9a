"""Which rank this process is, before MPI is loaded: from what mpiexec or srun put into the environment."""

from __future__ import annotations

import os

_RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def rank_here() -> int | None:
    """The rank of this process where mpiexec or srun has started it; None where nobody has."""
    names = list(_RANK_VARIABLES)
    # A batch script or an interactive allocation has SLURM_PROCID too, but is no rank.
    if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        names.append("SLURM_PROCID")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)
