"""A campaign's plan: what its YAML file may say, and the smoke runs it amounts to, each parsed before any starts."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from pydantic import BaseModel, Field, ValidationError

from recommender import records as r
from recommender.compiling import REPAIRS, doubled
from recommender.smoke import command
from recommender.smoke.taken import Load
from recommender.store import UnknownName, did_you_mean

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation
    from recommender.smoke.launch import Artefact

Seconds = Annotated[float, Field(ge=0, le=3600)]
RUNG = re.compile(r"-r\d+(-\d+)?$")
# The plan says these itself, or the campaign does: by field, or why there is none.
RESERVED = {
    "artefact": "a start takes options, no script",
    "gpu": "it belongs in the plan's field gpu",
    "phases": "it belongs in the field phases",
    "seconds": "it belongs in the field seconds",
    "quick": "it belongs in the field seconds",
    "copies": "it belongs in the field copies",
    "mps": "it belongs in the field mps",
    "kill": "it is for a fleet's folder",
    "weights_dir": "give it to recommend campaign",
    "save_evidence": "every start saves its evidence in RESULTS",
    "as_json": "every start saves its evidence in RESULTS",
    "dry_run": "recommend campaign --list starts nothing",
}


class PlanError(Exception):
    """A plan that cannot be run. ``problems``: one line each, with file, place and repair."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems[0])
        self.problems = problems


class Start(r.Record):
    """One start of a server, the loads that it serves, and how long each is driven."""

    id: r.Id
    base: str = Field(default="", description="the name of common words among the plan's bases")
    run: str = Field(default="", description="words of recommend smoke")
    phases: str = Field(default="", description="loads as --phase takes them; empty: those of the sweep")
    seconds: Seconds = Field(default=0, description="0: the plan's; in the sweep that of its first rung")
    copies: Annotated[int, Field(ge=1, le=16)] = 1
    mps: bool = False
    sweep: bool = Field(default=False, description="whether it takes part in the sweep")
    pick: str = Field(default="", description="loads for which recommend picks it: they stay in every rung")


class Rung(r.Record):
    """One round of the sweep: who is left runs again, longer or more often."""

    seconds: Seconds = Field(default=0, description="of each load; 0: the plan's")
    keep: Annotated[int, Field(ge=0)] = Field(default=0, description="how many of each load come from the rung before")
    times: Annotated[int, Field(ge=1, le=20)] = 1
    phases: str = Field(default="", description="the loads that it is about; empty: those of the sweep")


class Sweep(r.Record):
    """Successive halving among the starts with ``sweep: true``. The first rung is their own entry."""

    phases: r.Text
    rungs: tuple[Rung, ...] = Field(min_length=1)


class Plan(r.Record):
    """A plan file. The order of the starts is their priority."""

    id: r.Id = Field(description="prefix of the records' ids")
    about: r.Text
    gpu: r.Text
    seconds: Annotated[float, Field(gt=0, le=3600)] = 4
    common: str = Field(default="", description="words added to every run")
    bases: dict[r.Id, r.Text] = Field(default={}, description="words that several starts share, by name")
    starts: tuple[Start, ...] = Field(min_length=1)
    sweep: Sweep | None = None


@dataclass(frozen=True)
class Launch:
    """One smoke run of a campaign. ``rung`` 0: no part of the sweep; ``what`` is the digest of what the server runs.

    ``picks``: loads of the sweep that it goes on with in any case; ``meant``: see ``launch.meant``.
    """

    id: str
    start: str
    rung: int
    words: tuple[str, ...]
    loads: tuple[str, ...]
    seconds: float
    copies: int
    mps: bool
    what: str
    picks: tuple[str, ...] = ()
    meant: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Over all that decides what is measured."""
        plain = json.dumps([self.what, self.words, self.loads, self.seconds, self.copies, self.mps])
        return hashlib.sha256(plain.encode()).hexdigest()[:16]

    def options(self) -> list[str]:
        """The words of ``recommend smoke``."""
        loads = [word for each in self.loads for word in ("--phase", each)]
        copies = ["--copies", str(self.copies)] if self.copies > 1 else []
        return [*self.words, *loads, "--seconds", f"{self.seconds:g}", *copies, *(["--mps"] if self.mps else [])]


@dataclass(frozen=True)
class Checked:
    """A plan whose every start was parsed: its launches in their order, the loads of its sweep and of each rung."""

    plan: Plan
    launches: tuple[Launch, ...]
    loads: tuple[str, ...]
    rung_loads: tuple[tuple[str, ...], ...] = ()

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs of the sweep; empty without one."""
        return self.plan.sweep.rungs if self.plan.sweep else ()


def name_of(load: Load) -> str:
    """A load as ``--phase`` takes it, its picture always named."""
    return _name(load.concurrency, load.rps, load.images, f"{load.width}x{load.height}")


def name_of_phase(phase: r.Phase) -> str:
    """The load that a record's phase drove, named alike."""
    return _name(phase.concurrency, phase.arrivals_rps, phase.images, phase.image)


def _name(concurrency: int, rps: float, images: int, image: str) -> str:
    how = str(concurrency) if concurrency else f"{rps:g}rps"
    return f"{how}@{image}" + (f"x{images}" if images > 1 else "") if images else f"{how}@text"


# --- reading --------------------------------------------------------------------------------


def read(path: Path) -> Checked:
    """A plan from its file, every start parsed as ``recommend smoke`` will parse it. Raises PlanError."""
    import yaml

    try:
        raw = yaml.load(text := path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for line, key in doubled(text):
            raise PlanError([f"{path}: line {line}: the key {key!r} stands twice; leave one out"])
        plan = Plan.model_validate_json(json.dumps(raw, default=str))
    except OSError as error:
        raise PlanError([f"{path}: {error.strerror}; name a plan, such as knowledge/campaigns/h100.yaml"]) from None
    except ValidationError as error:
        raise PlanError([f"{path}: {each}" for each in _invalid(error, raw)]) from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise PlanError([f"{path}: not readable as YAML: {_line(error)}; mend it there"]) from None
    problems = list(_contradictions(plan))
    if problems:
        raise PlanError([f"{path}: {each}" for each in problems])
    return _checked(path, plan)


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _invalid(error: ValidationError, raw: Any) -> Iterator[str]:
    """Each field that the types refuse: where, what, repair."""
    for each in error.errors(include_url=False, include_context=False):
        place, name = _place(each["loc"], raw), str(each["loc"][-1]) if each["loc"] else ""
        if each["type"] == "extra_forbidden":
            yield f"{place}: no such field{did_you_mean(name, _fields(each['loc']))}"
        else:
            yield f"{place}: {_line(each['msg'])}; {REPAIRS.get(each['type'], 'mend the value')}"


def _fields(where: tuple[int | str, ...]) -> list[str]:
    kind: type[BaseModel] = {"starts": Start, "sweep": Rung if "rungs" in where else Sweep}.get(str(where[0]), Plan)
    return list((kind if len(where) > 1 else Plan).model_fields)


def _place(where: tuple[int | str, ...], raw: Any) -> str:
    """The path of a field; a start by its id where it has one."""
    parts = [f"[{each}]" if isinstance(each, int) else f".{each}" for each in where]
    if len(where) > 1 and where[0] == "starts" and isinstance(where[1], int):
        start = raw["starts"][where[1]]
        known = start.get("id") if isinstance(start, dict) else None
        parts[:2] = [f"start {known}: "] if isinstance(known, str) else [f"starts[{where[1]}]"]
    return "".join(parts).replace(": .", ": ").lstrip(".") or "(whole file)"


def _contradictions(plan: Plan) -> Iterator[str]:
    """What the fields say against each other."""
    for name, count in Counter(each.id for each in plan.starts).items():
        if count > 1:
            yield f"start {name}: id: {count} starts have it; give each its own"
    for start in plan.starts:
        if RUNG.search(start.id):
            yield f"start {start.id}: id: ends as the id of a later rung's run does; choose another"
        if start.base and start.base not in plan.bases:
            yield f"start {start.id}: base: no such base {start.base!r}{did_you_mean(start.base, plan.bases)}"
        if start.sweep and plan.sweep is None:
            yield f"start {start.id}: sweep: the plan has no field sweep; add it, or leave this out"
        if not start.sweep and not start.phases.split():
            yield f"start {start.id}: phases: no load; name some, such as 1 16 64@1280x720"
    if plan.sweep is None:
        return
    if not plan.sweep.phases.split():
        yield "sweep.phases: no load; name some, such as 1 16 64@1280x720"
    first, *later = plan.sweep.rungs
    if first.keep or first.times > 1:
        yield "sweep.rungs[0]: the first rung is every start once; leave keep and times out"
    yield from (f"sweep.rungs[{n}].keep: say how many come so far" for n, each in enumerate(later, 1) if not each.keep)
    if not any(each.sweep for each in plan.starts):
        yield "starts: none takes part in the sweep; give some sweep: true"


# --- every start, parsed ----------------------------------------------------------------------


def _checked(path: Path, plan: Plan) -> Checked:
    """Every start as it will be launched. Raises PlanError with all that are wrong."""
    made: list[Launch] = []
    sweep: tuple[str, ...] = ()
    problems: list[str] = []
    for start in plan.starts:
        try:
            launch, loads = _launch(plan, start, sweep)
        except PlanError as error:
            problems += [f"{path}: start {start.id}: {each}" for each in error.problems]
            continue
        made.append(launch)
        sweep = sweep or loads
    rungs = [each.phases.split() for each in plan.sweep.rungs] if plan.sweep else []
    for number, words in enumerate(rungs):
        odd = set(words) - set(sweep)
        problems += [f"{path}: sweep.rungs[{number}].phases: {each}{_near(each, sweep)}" for each in sorted(odd)]
    for each in made:
        odd = set(each.picks) - set(sweep)
        problems += [f"{path}: start {each.id}: pick: {one}{_near(one, sweep)}" for one in sorted(odd)]
    if problems:
        raise PlanError(problems)
    return Checked(plan, tuple(made), sweep, tuple(tuple(each) or sweep for each in rungs))


def _near(load: str, sweep: tuple[str, ...]) -> str:
    return f" is no load of the sweep{did_you_mean(load, sweep)}; write it with its picture"


def _launch(plan: Plan, start: Start, sweep: tuple[str, ...]) -> tuple[Launch, tuple[str, ...]]:
    """A start's launch, and the sweep's loads, named with the picture of its first start. Raises PlanError."""
    from recommender import arguments
    from recommender.checkpoint import CheckpointError, looks_like_path
    from recommender.pipeline import NothingFits
    from recommender.request import RequestError
    from recommender.smoke import host, launch

    own = _split(" ".join((plan.common, plan.bases.get(start.base, ""), start.run)))
    given = _parsed(own)
    weights = [] if given["weights"] or looks_like_path(given["model"] or "") else ["--weights", "random"]
    try:
        pin, found = host.named_cores(given["pin"] or ""), arguments.answer({**given, "gpu": plan.gpu})
        artefact = _artefact(found, start.copies)
        if start.sweep and plan.sweep and not sweep:
            sweep = tuple(name_of(each) for each in command.loads(tuple(plan.sweep.phases.split()), found))
        texts = tuple(start.phases.split()) or sweep
        loads = tuple(name_of(each) for each in command.loads(texts, found))
    except (RequestError, UnknownName, CheckpointError) as error:
        raise PlanError([_line(error)]) from None
    except NothingFits as error:
        raise PlanError([f"nothing fits: {_line(error)}; ask for less"]) from None
    twice = [name for name, count in Counter(loads).items() if count > 1]
    if twice:
        raise PlanError([f"phases: {twice[0]} stands there twice; leave one out"])
    first = plan.sweep.rungs[0].seconds if start.sweep and plan.sweep else 0
    made = Launch(
        id=start.id,
        start=start.id,
        rung=int(start.sweep),
        words=("--gpu", plan.gpu, *own, *weights),
        loads=loads,
        seconds=start.seconds or first or plan.seconds,
        copies=start.copies,
        mps=start.mps,
        what=artefact.launch_sha256(found.facts),
        picks=tuple(start.pick.split()),
        meant=launch.meant(found, host.random_weights(given["seed"]) if weights else "", pin),
    )
    return made, sweep if start.sweep else ()


def _artefact(found: Recommendation, copies: int) -> Artefact:
    """The script to launch. Raises RequestError where that cannot be done."""
    from recommender.render import render
    from recommender.smoke import launch

    script = launch.of(render(found, "bash"), "serve.sh")
    launch.settings(found.facts, script.words(found.facts, {}))
    if copies > 1:
        launch.needs_ports(script, found.facts)
    return script


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise PlanError([f"run: {_line(error).lower()}; see the quotes in run, base and common"]) from None


def _parsed(words: list[str]) -> dict[str, Any]:
    """The options as ``recommend smoke`` reads them. Raises PlanError."""
    try:
        context = command.smoke.make_context("recommend smoke", list(words))
    except click.exceptions.Exit:
        raise PlanError(["run: -h runs nothing; leave it out"]) from None
    except click.NoSuchOption as error:
        near = f"; did you mean {', '.join(error.possibilities)}?" if error.possibilities else ""
        raise PlanError([f"run: no such option {error.option_name}{near or '; see recommend smoke --help'}"]) from None
    except click.ClickException as error:
        raise PlanError([f"run: {_line(error.format_message()).rstrip('.')}; see recommend smoke --help"]) from None
    for name, why in RESERVED.items():
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(each.opts[0] for each in command.smoke.params if each.name == name)
            raise PlanError([f"run: {'SCRIPT' if name == 'artefact' else option}: {why}"])
    return dict(context.params)
