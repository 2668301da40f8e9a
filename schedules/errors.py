"""Every error this project raises on purpose, with the exit code the command line gives it."""


class StragglarError(Exception):
    """Base of all expected failures: one clear line, never a traceback, for the user.

    Attributes:
        exit_code: what the `stragglar` command exits with when this error ends it.
    """

    exit_code = 1


class InvalidScheduleError(StragglarError):
    """A schedule, or a program made from one, breaks a rule or computes a wrong result."""


class FormatError(InvalidScheduleError):
    """A file is not in the format it claims: says which file, where, and what was expected."""


class UsageError(StragglarError):
    """A request contradicts itself or is outside what any schedule can do."""

    exit_code = 2


class InfeasibleError(StragglarError):
    """The request is well formed, but no schedule or program exists within the stated limits."""

    exit_code = 3


class MissingError(StragglarError):
    """Something this machine lacks (an MPI, a package, a GPU): says what and how to get it."""

    exit_code = 4


class RunError(StragglarError):
    """A run on real processes failed: a rank died, stalled, or was given different input."""
