"""Faults on purpose: what can be broken, when, and whether it was noticed and mended."""
