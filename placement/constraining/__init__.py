"""Placing under side constraints."""
