"""What every record has: ids, versions, dates and sources."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


def _check_day(text: str) -> str:
    """Return a date as it is written. Raises where the calendar has no such day."""
    try:
        date.fromisoformat(text)
    except ValueError:
        raise PydanticCustomError("no_day", "there is no day {text}", {"text": text}) from None
    return text


Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]


Version = Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+(\.post\d+)?$")]


VersionOrOpen = Annotated[str, Field(pattern=r"^(\d+\.\d+\.\d+(\.post\d+)?)?$")]


Date = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"), AfterValidator(_check_day)]


Text = Annotated[str, Field(min_length=1)]


Engine = Literal["turbomind", "pytorch", "server", "nobody"]


Verdict = Literal["confirmed", "refuted", "no-effect", "outdated", "depends", "unverified"]


class Record(BaseModel):
    """Base of all record types: frozen, strict, closed."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class CodeSource(Record):
    """A token on one line of a file in one LMDeploy release.

    A path under ``lmdeploy/`` or ``METADATA`` is in the release's wheel; any other
    path is in the public repository at the release's tag.
    """

    release: Version = Field(description="LMDeploy release that was opened")
    path: Text = Field(description="file in the wheel or repository")
    line: Annotated[int, Field(ge=1, description="line of the token, from 1")]
    token: Text = Field(description="text that stands on the line")


class PageSource(Record):
    """A page (datasheet, model card, issue thread) and what was read on it that day."""

    url: Annotated[str, Field(pattern=r"^https?://", description="address of the page")]
    opened: Date = Field(description="day it was opened")
    says: Text = Field(description="what was read there")


class Sources(Record):
    """What a record rests on. All three empty means: unverified, and shown so."""

    code: tuple[CodeSource, ...] = Field(default=(), description="lines of LMDeploy's code")
    pages: tuple[PageSource, ...] = Field(default=(), description="pages by vendors and others")
    evidence: tuple[Id, ...] = Field(default=(), description="ids of measured runs")

    @property
    def empty(self) -> bool:
        """True when nobody opened anything for this fact."""
        return not (self.code or self.pages or self.evidence)


class Place(Record):
    """Where a statement stands in a seed text: its number, 1-based line and a short token there."""

    seed: Literal["000", "001", "002", "003", "004"] = Field(description="number of the seed text")
    line: Annotated[int, Field(ge=1, description="line in it, from 1")]
    token: Text = Field(description="text that stands on the line")
