"""Fabrics whose rails meet only at the spine."""
