"""Read a campaign's plan and parse every start as ``recommend smoke`` will."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import BaseModel, ValidationError

from recommender.common.errors import PlanError, RequestError
from recommender.common.parse import duplicate_keys, parse_yaml
from recommender.common.text import did_you_mean, one_line
from recommender.common.user_file import Unreadable, read_text
from recommender.knowledge.index import REPAIRS
from recommender.smoke import phases
from recommender.smoke.campaign.plan import ParsedPlan, Plan, PlannedRun, Rung, Start, Sweep, name_of

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.render.artefact import Artefact

RUNG = re.compile(r"-r\d+(-\d+)?$")
# Options that plan or campaign set themselves, and where.
RESERVED = {
    "artefact": "a start takes options, no script",
    "gpu": "it belongs in the plan's field gpu",
    "phases": "it belongs in the field phases",
    "seconds": "it belongs in the field seconds",
    "quick": "it belongs in the field seconds",
    "copies": "it belongs in the field copies",
    "mps": "it belongs in the field mps",
    "kill": "it needs a fleet folder",
    "weights_dir": "pass it to recommend campaign",
    "save_evidence": "every start saves its evidence in RESULTS",
    "as_json": "every start saves its evidence in RESULTS",
    "dry_run": "recommend campaign --list starts nothing",
}


def read_plan(path: Path, smoke: click.Command) -> ParsedPlan:
    """Read a plan and parse every start with ``smoke``, the click command; or raise PlanError."""
    try:
        raw = parse_yaml(text := read_text(path))
        for line, key in duplicate_keys(text):
            raise PlanError([f"{path}: line {line}: duplicate key {key!r}; remove one"])
        plan = Plan.model_validate_json(json.dumps(raw, default=str))
    except OSError as error:
        raise PlanError([f"{path}: {error.strerror}; name a plan, such as knowledge/campaigns/h100.yaml"]) from None
    except ValidationError as error:
        raise PlanError([f"{path}: {problem}" for problem in _field_problems(error, raw)]) from None
    except Unreadable as error:
        raise PlanError([f"{path}: {error}"]) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise PlanError([f"{path}: invalid YAML: {one_line(error)}; fix it there"]) from None
    problems = list(_contradictions(plan))
    if problems:
        raise PlanError([f"{path}: {problem}" for problem in problems])
    return _parse_starts(path, plan, smoke)


def _field_problems(error: ValidationError, raw: Any) -> Iterator[str]:
    for detail in error.errors(include_url=False, include_context=False):
        place, name = _place(detail["loc"], raw), str(detail["loc"][-1]) if detail["loc"] else ""
        if detail["type"] == "extra_forbidden":
            yield f"{place}: no such field{did_you_mean(name, _fields(detail['loc']))}"
        else:
            yield f"{place}: {one_line(detail['msg'])}; {REPAIRS.get(detail['type'], 'fix the value')}"


def _fields(where: tuple[int | str, ...]) -> list[str]:
    kind: type[BaseModel] = {"starts": Start, "sweep": Rung if "rungs" in where else Sweep}.get(str(where[0]), Plan)
    return list((kind if len(where) > 1 else Plan).model_fields)


def _place(where: tuple[int | str, ...], raw: Any) -> str:
    """Return a field's path, naming a start by its id."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in where]
    if len(where) > 1 and where[0] == "starts" and isinstance(where[1], int):
        start = raw["starts"][where[1]]
        name = start.get("id") if isinstance(start, dict) else None
        parts[:2] = [f"start {name}: "] if isinstance(name, str) else [f"starts[{where[1]}]"]
    return "".join(parts).replace(": .", ": ").lstrip(".") or "(whole file)"


def _contradictions(plan: Plan) -> Iterator[str]:
    for name, count in Counter(start.id for start in plan.starts).items():
        if count > 1:
            yield f"start {name}: id: used by {count} starts; make ids unique"
    for start in plan.starts:
        if RUNG.search(start.id):
            yield f"start {start.id}: id: ends like the id of a later rung's run; choose another"
        if start.base and start.base not in plan.bases:
            yield f"start {start.id}: base: no such base {start.base!r}{did_you_mean(start.base, plan.bases)}"
        if start.sweep and plan.sweep is None:
            yield f"start {start.id}: sweep: the plan has no field sweep; add it, or remove this"
        if not start.sweep and not start.phases.split():
            yield f"start {start.id}: phases: no load; add some, such as 1 16 64@1280x720"
    if plan.sweep is None:
        return
    if not plan.sweep.phases.split():
        yield "sweep.phases: no load; add some, such as 1 16 64@1280x720"
    first, *later = plan.sweep.rungs
    if first.keep or first.times > 1:
        yield "sweep.rungs[0]: the first rung runs every start once; remove keep and times"
    yield from (
        f"sweep.rungs[{n}].keep: set how many starts continue" for n, rung in enumerate(later, 1) if not rung.keep
    )
    if not any(start.sweep for start in plan.starts):
        yield "starts: none takes part in the sweep; set sweep: true for some"


# --- every start, parsed ----------------------------------------------------------------------


def _parse_starts(path: Path, plan: Plan, smoke: click.Command) -> ParsedPlan:
    """Return every start as it will be launched; raise PlanError with all problems."""
    planned: list[PlannedRun] = []
    sweep: tuple[str, ...] = ()
    problems: list[str] = []
    for start in plan.starts:
        try:
            launch, loads = _plan_run(plan, start, sweep, smoke)
        except PlanError as error:
            problems += [f"{path}: start {start.id}: {problem}" for problem in error.problems]
            continue
        planned.append(launch)
        sweep = sweep or loads
    rungs = [rung.phases.split() for rung in plan.sweep.rungs] if plan.sweep else []
    for number, words in enumerate(rungs):
        unknown = set(words) - set(sweep)
        problems += [
            f"{path}: sweep.rungs[{number}].phases: {load}{_unknown_load(load, sweep)}" for load in sorted(unknown)
        ]
    for launch in planned:
        unknown = set(launch.picks) - set(sweep)
        problems += [
            f"{path}: start {launch.id}: pick: {load_name}{_unknown_load(load_name, sweep)}"
            for load_name in sorted(unknown)
        ]
    if problems:
        raise PlanError(problems)
    return ParsedPlan(plan, tuple(planned), sweep, tuple(tuple(rung) or sweep for rung in rungs))


def _unknown_load(load: str, sweep: tuple[str, ...]) -> str:
    return f" is no load of the sweep{did_you_mean(load, sweep)}; write it with its picture"


def _plan_run(
    plan: Plan, start: Start, sweep: tuple[str, ...], smoke: click.Command
) -> tuple[PlannedRun, tuple[str, ...]]:
    """Return a start's run, and the sweep's loads if it takes part; or raise PlanError."""
    from recommender import options
    from recommender.render import artefact as launch
    from recommender.request.model_folder import looks_like_path
    from recommender.smoke.process import host

    words = _split(" ".join((plan.common, plan.bases.get(start.base, ""), start.run)))
    params = _parse_options(words, smoke)
    weights = [] if params["weights"] or looks_like_path(params["model"] or "") else ["--weights", "random"]
    with _one_line_errors():
        pin = host.parse_cores(params["pin"] or "")
        recommendation = options.build_recommendation({**params, "gpu": plan.gpu})
        artefact = _render_script(recommendation, start.copies)
        if start.sweep and plan.sweep and not sweep:
            sweep = _load_names(plan.sweep.phases, recommendation)
        loads = _load_names(start.phases.strip() or " ".join(sweep), recommendation)
    repeated = [name for name, count in Counter(loads).items() if count > 1]
    if repeated:
        raise PlanError([f"phases: {repeated[0]} appears twice; remove one"])
    first = plan.sweep.rungs[0].seconds if start.sweep and plan.sweep else 0
    planned = PlannedRun(
        id=start.id,
        start=start.id,
        rung=int(start.sweep),
        words=("--gpu", plan.gpu, *words, *weights),
        loads=loads,
        seconds=start.seconds or first or plan.seconds,
        copies=start.copies,
        mps=start.mps,
        what=artefact.launch_sha256(recommendation.resolved),
        picks=tuple(start.pick.split()),
        identity=launch.identify_setup(
            recommendation, host.describe_random_weights(params["seed"]) if weights else "", pin
        ),
    )
    return planned, sweep if start.sweep else ()


def _load_names(text: str, recommendation: Recommendation) -> tuple[str, ...]:
    return tuple(name_of(load) for load in phases.parse_loads(tuple(text.split()), recommendation))


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    from recommender.choose.recommend import NothingFits

    try:
        yield
    except RequestError as error:
        raise PlanError([one_line(error)]) from None
    except NothingFits as error:
        raise PlanError([f"nothing fits: {one_line(error)}; request less"]) from None


def _render_script(recommendation: Recommendation, copies: int) -> Artefact:
    """Return the script to launch; raise RequestError if its settings are invalid."""
    from recommender.render import artefact
    from recommender.render.formats import render

    script = artefact.parse(render(recommendation, "bash"), "serve.sh")
    artefact.settings(recommendation.resolved, script.words(recommendation.resolved, {}))
    if copies > 1:
        artefact.require_server_port(script, recommendation.resolved)
    return script


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise PlanError([f"run: {one_line(error).lower()}; check the quotes in run, base and common"]) from None


def _parse_options(words: list[str], smoke: click.Command) -> dict[str, Any]:
    """Return the options as ``recommend smoke`` parses them; or raise PlanError."""
    try:
        context = smoke.make_context("recommend smoke", list(words))
    except click.exceptions.Exit:
        raise PlanError(["run: remove -h, it runs nothing"]) from None
    except click.NoSuchOption as error:
        near = f"; did you mean {', '.join(error.possibilities)}?" if error.possibilities else ""
        raise PlanError([f"run: no such option {error.option_name}{near or '; see recommend smoke --help'}"]) from None
    except click.ClickException as error:
        raise PlanError([f"run: {one_line(error.format_message()).rstrip('.')}; see recommend smoke --help"]) from None
    for name, why in RESERVED.items():
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(param.opts[0] for param in smoke.params if param.name == name)
            raise PlanError([f"run: {'SCRIPT' if name == 'artefact' else option}: {why}"])
    return dict(context.params)
