"""What the network is like, and how it does, from what probes between its nodes measured."""

from .health import Between, Finding, Health, HealthRules, Symptom
from .health_book import HealthBook
from .health_effects import Effects, degraded_ctg, effects_of, link_health
from .infer import DomainFound, Inference, infer
from .labels import Contradiction
from .measurements import Measurement, ProbeKind, ProbeRound
from .numbers import TierNumbers, meeting, tier_numbers
from .probing import ProbeBudget, Probing, Remaining
from .reprobing import Rewatching, watch_rounds, watched_pairs

__all__ = [
    "Between",
    "Contradiction",
    "DomainFound",
    "Effects",
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
    "Rewatching",
    "Symptom",
    "TierNumbers",
    "degraded_ctg",
    "effects_of",
    "infer",
    "link_health",
    "meeting",
    "tier_numbers",
    "watch_rounds",
    "watched_pairs",
]
