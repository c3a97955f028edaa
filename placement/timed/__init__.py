"""Predicted time of communication, and placements that make it short."""
