"""A job and a cluster as the solver sees them: units, kinds, tiers as arrays."""
