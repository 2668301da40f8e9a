"""A run that lasts long enough to be interrupted from outside; argument: the folder for temporary files."""

import sys
import tempfile

from stragglar.backends.run import RunRequest, run
from stragglar.synth.families import synthesize
from stragglar.synth.request import Request

if __name__ == "__main__":
    tempfile.tempdir = sys.argv[1]
    schedule = synthesize(Request(ranks=3, late=(0,), algorithm="stragglar"))
    run(schedule, "mpi", RunRequest(count=10, late_by=30.0))
