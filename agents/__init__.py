"""Agents: what runs on the nodes."""
