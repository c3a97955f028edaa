"""What no placement of a job can do with less of."""
