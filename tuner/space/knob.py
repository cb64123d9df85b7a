"""The address of a value that the search may choose: whose it is, and which."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spec.paths import SERVER, is_inside

__all__ = ["SERVER", "Knob"]


@dataclass(frozen=True, order=True)
class Knob:
    """A field of one model, or a setting of the server.

    Its text is for people and for Optuna's names; nothing parses it.

    Attributes:
        owner: Name of the model, or `SERVER`.
        path: ModelConfig path (``instance_group.count``), or the name of a server's setting.
    """

    owner: str
    path: str

    def is_inside(self, message: Knob) -> bool:
        """It is a field inside that message of the same model."""
        return self.owner == message.owner and is_inside(self.path, message.path)

    def __str__(self) -> str:
        return self.path if self.owner == SERVER else f"{self.owner}/{self.path}"
