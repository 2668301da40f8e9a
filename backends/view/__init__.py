"""Schedules and MSCCL programs to look at: pictures, timelines, and a page to explore them in."""
