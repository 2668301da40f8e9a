"""Schedules in which every rank sends to the rank that it receives from."""
