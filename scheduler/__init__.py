"""Scheduler: the daemon, its store, and the ways to talk to it."""
