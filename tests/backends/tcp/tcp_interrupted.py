"""A run for the test of Ctrl-C: its folder is made in the folder given, and it lasts."""

import sys
import tempfile

from stragglar.backends.run import RunRequest, run
from stragglar.schedules.ring import ring_all_reduce

if __name__ == "__main__":
    tempfile.tempdir = sys.argv[1]
    run(ring_all_reduce(3), "tcp", RunRequest(count=100, delays=(0.0, 0.0, 60.0)))
