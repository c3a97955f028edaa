"""Fits the constants of the cost model on published measurements, and shows how far it is off."""
