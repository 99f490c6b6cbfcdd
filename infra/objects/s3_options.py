"""How S3 is reached; apart from the client, so that whoever has the settings need not import it."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options(Value):
    """endpoint, region: "" for what the AWS tools' own settings say. path_style: "auto" (with an endpoint), "yes" or
    "no". attempts: of one request; timeout_s: how long an answer may be silent.
    """

    endpoint: str = ""
    region: str = ""
    path_style: str = "auto"
    attempts: int = 8
    timeout_s: float = 30.0

    @property
    def addressing(self) -> str:
        by_path = self.path_style == "yes" or (self.path_style == "auto" and bool(self.endpoint))
        return "path" if by_path else "virtual" if self.path_style == "no" else "auto"
