"""Jobs that are grids: how many units of each class go into each domain."""
