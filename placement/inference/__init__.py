"""What the network is like, and how it does, from what probes between its nodes measured."""

from .health import Finding, Health, HealthRules, Symptom
from .health_book import HealthBook
from .health_effects import avoiding, degraded_ctg, link_health
from .infer import DomainFound, Inference, infer
from .labels import Contradiction
from .measurements import Measurement, ProbeKind, ProbeRound
from .numbers import TierNumbers, meeting, tier_numbers
from .probing import ProbeBudget, Probing, Remaining

__all__ = [
    "Contradiction",
    "DomainFound",
    "Finding",
    "Health",
    "HealthBook",
    "HealthRules",
    "Inference",
    "Measurement",
    "ProbeBudget",
    "ProbeKind",
    "ProbeRound",
    "Probing",
    "Remaining",
    "Symptom",
    "TierNumbers",
    "avoiding",
    "degraded_ctg",
    "infer",
    "link_health",
    "meeting",
    "tier_numbers",
]
