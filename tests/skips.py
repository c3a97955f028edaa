"""Reasons for which a test may be skipped, also where the whole check runs; every other one fails
it."""

ABSENT_MATERIAL = "reference material beside the repository is absent"
UNABLE_MACHINE = "this machine cannot hold a fabric"
"""How a reason begins that no package would mend: rights, or what the kernel lacks."""
ALLOWED = (ABSENT_MATERIAL, UNABLE_MACHINE)
