"""Benchmarks of the placement solver, side by side with the tools people use today."""
