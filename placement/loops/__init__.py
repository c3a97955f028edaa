"""Loops compiled to machine code, and what they may cost."""
