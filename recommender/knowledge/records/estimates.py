"""What estimates and choices rest on: constraints, coefficients, residuals."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recommender.knowledge.records.base import Id, Record, Sources, Text


class Constraint(Record):
    """What hardware, model or release allow.

    Where every condition of ``when`` holds, each of ``require`` must; else ``message``
    (with {names} filled in) rejects the configuration, or warns.
    """

    id: Id
    severity: Literal["reject", "warn"]
    when: tuple[Text, ...] = ()
    require: tuple[Text, ...] = Field(min_length=1)
    message: Text
    remedy: Text
    sources: Sources


class Coefficient(Record):
    """A number of the estimates with its range and where it comes from."""

    id: Id
    value: float
    low: float
    high: float
    unit: Text
    basis: Literal["fitted", "measured", "modelled", "vendor", "assumed"] = Field(
        description="fitted: recommend knowledge fit finds the value, between low and high"
    )
    summary: Text
    derivation: Text
    sources: Sources = Field(default_factory=Sources)


class Residuals(Record):
    """How far one predicted figure was off at runs that the fit had not seen; ``recommend knowledge fit`` writes it.

    A fit leaves out one model, one part of the configurations or one workload, and is judged by what it left out.
    ``low`` and ``high`` are measured over predicted: four fifths of these errors lie between, and one is the other's
    inverse, because the side that the models seen erred on says nothing of an unseen one's.
    """

    id: Id
    low: Annotated[float, Field(gt=0)]
    high: Annotated[float, Field(gt=0)]
    by_model: Annotated[float, Field(ge=0, description="median error of models left out, as a share")]
    by_configuration: Annotated[float, Field(ge=0, description="median error of configurations left out")]
    by_workload: float | None = Field(default=None, ge=0, description="of workloads left out; only of simulated loads")
    worst: Annotated[float, Field(ge=0)]
    covered: Annotated[float, Field(ge=0, le=1, description="share inside the range that all other parts' errors give")]
    predictions: Annotated[int, Field(ge=1, description="launches under a load; their repeats share one's weight")]
    starts: Annotated[int, Field(ge=1, description="server starts behind them, repeats too")]
    models: tuple[Id, ...]
    engines: tuple[Literal["turbomind", "pytorch"], ...] = ("turbomind",)
    gpus: tuple[Id, ...]
    cards: tuple[Text, ...] = Field(description="GPU and cards of a server, as in h200-sxm x2")
