"""What a loss asks of a placement, and where the ranks that must move go."""
