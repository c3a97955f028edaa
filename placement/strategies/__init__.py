"""How a workload is split: rules, the grid of ranks, stages, and what every strategy sends."""
