"""The optimizer of all backends, as a job asks for it. Which parameters decay, and what velocities are called.

To measure img/s it is plain SGD at one rate. To train to an accuracy it is SGD with momentum as Goyal et al. write it
(arXiv:1706.02677, equations 9 and section 5.1), with the rate outside the velocity, so that a new rate acts at once:

    v ← momentum · v + (gradient + weight decay · w)
    w ← w − rate · v
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping


@dataclass(frozen=True)
class Sgd:
    """SGD's constants; ``rate`` is that of the first step."""

    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Sgd:
        training = spec.get("training")
        if training is None:
            return cls(spec["learning_rate"])
        return cls(spec["learning_rate"], training["momentum"], training["weight_decay"])

    def decay(self, name: str) -> float:
        """The weight decay of a tensor: none for biases, nor for batch norms' gamma and beta."""
        return self.weight_decay if name.endswith("kernel") else 0.0


def velocity(name: str) -> str:
    return f"velocity/{name}"
