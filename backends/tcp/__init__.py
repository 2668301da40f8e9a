"""Schedules over plain TCP sockets: one process a rank, nothing to install."""
