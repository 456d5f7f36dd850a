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

    id: Id = Field(description="name of the file")
    severity: Literal["reject", "warn"] = Field(description="reject: drops the configuration; warn: says so")
    when: tuple[Text, ...] = Field(default=(), description="conditions under which it applies")
    require: tuple[Text, ...] = Field(min_length=1, description="conditions that must then hold")
    message: Text = Field(description="what is wrong")
    remedy: Text = Field(description="what to do")
    sources: Sources = Field(description="what it rests on")


class Coefficient(Record):
    """A number of the estimates with its range and where it comes from."""

    id: Id = Field(description="name of the file")
    value: float = Field(description="value, in unit")
    low: float = Field(description="low end of its range")
    high: float = Field(description="high end of its range")
    unit: Text = Field(description="unit of the three figures")
    basis: Literal["fitted", "measured", "modelled", "vendor", "assumed"] = Field(
        description="fitted: recommend knowledge fit finds the value, between low and high"
    )
    summary: Text = Field(description="what it is")
    derivation: Text = Field(description="where the value comes from")
    sources: Sources = Field(default_factory=Sources, description="what it rests on")


class Residuals(Record):
    """How far one predicted figure was off at runs that the fit had not seen; ``recommend knowledge fit`` writes it.

    A fit leaves out one model, one part of the configurations or one workload, and is judged by what it left out.
    ``low`` and ``high`` are measured over predicted; four fifths of these errors lie between. One is the other's
    inverse: that known models were predicted too high does not say on which side an unseen one will be.
    """

    id: Id = Field(description="name of the file")
    low: Annotated[float, Field(gt=0, description="low end of measured / predicted")]
    high: Annotated[float, Field(gt=0, description="high end of measured / predicted")]
    by_model: Annotated[float, Field(ge=0, description="median error of models left out, as a share")]
    by_configuration: Annotated[float, Field(ge=0, description="median error of configurations left out")]
    by_workload: float | None = Field(default=None, ge=0, description="of workloads left out; only of simulated loads")
    worst: Annotated[float, Field(ge=0, description="largest error, as a share")]
    covered: Annotated[float, Field(ge=0, le=1, description="share inside the range that all other parts' errors give")]
    predictions: Annotated[int, Field(ge=1, description="launches under a load; their repeats share one's weight")]
    starts: Annotated[int, Field(ge=1, description="server starts behind them, repeats too")]
    models: tuple[Id, ...] = Field(description="ids of the models that were run")
    engines: tuple[Literal["turbomind", "pytorch"], ...] = Field(
        default=("turbomind",), description="engines that were run"
    )
    gpus: tuple[Id, ...] = Field(description="ids of the GPUs that were run")
    cards: tuple[Text, ...] = Field(description="GPU and cards of a server, as in h200-sxm x2")
