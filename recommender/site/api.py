"""The static JSON API: files below ``api/v1/`` with every record as it is, and the recommender's own answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import getdoc
from typing import Any

from recommender import __version__
from recommender import records as r
from recommender.compiling import TYPES
from recommender.site import markup as m
from recommender.site import states
from recommender.site.book import Book
from recommender.site.slices import slices
from recommender.site.states import compact
from recommender.store import FOLDERS, Plain

ROOT = "api/v1"
LICENCE = "Apache-2.0"
COMMAND = "recommend --gpu {gpu} --model {model} --load {load} --goal {goal} --quiet"
TITLES = ("name", "hub", "option", "title", "statement", "summary")
"""Fields of which the first that a record has is shown beside its id in the index of its kind."""


def files(book: Book) -> Iterator[tuple[str, str]]:
    """Every file of the interface: its path below the site's root, and its text."""
    yield f"{ROOT}/index.json", compact(index(book))
    for kind in FOLDERS:
        found = records(book, kind)
        yield f"{ROOT}/{kind}/index.json", compact(_kind(kind, found))
        for name, record in found.items():
            yield f"{ROOT}/{kind}/{name}.json", compact(record)
    yield f"{ROOT}/recommendations/index.json", compact(grid(book))
    yield f"{ROOT}/recommendations/options.json", _options()
    for path, text in _slices().items():
        yield f"{ROOT}/recommendations/{path}", text


@cache
def _slices() -> Mapping[str, str]:
    return slices()


@cache
def _options() -> str:
    return states.options()


def records(book: Book, kind: str) -> dict[str, Any]:
    """The records of a kind as JSON values; evidence whole, of which the store keeps only a part."""
    whole: Mapping[str, Mapping[str, r.Record]] = {"evidence": book.runs, "probes": book.probes}
    if kind in whole:
        return {name: each.model_dump(mode="json") for name, each in whole[kind].items()}
    return {name: _plain(each) for name, each in getattr(book.store, kind).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Plain):
        return {name: _plain(each) for name, each in vars(value).items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def schema(kind: str) -> str:
    """The file with the JSON Schema of a kind's records."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", TYPES[kind].__name__).lower() + ".json"


def index(book: Book) -> dict[str, Any]:
    """What there is."""
    return {
        "format": states.FORMAT,
        "made_by": f"lmdeploy-recommender {__version__}",
        "licence": LICENCE,
        "lmdeploy": [each.id for each in book.releases],
        "read": "kinds[KIND].index lists the records of a kind, KIND/ID.json is one; recommendations/MODEL/GPU.json "
        "has the answers of a model on one card for every load and goal. Paths are relative to this file.",
        "page": "../../reference/api.html",
        "kinds": {
            kind: {
                "count": len(getattr(book.store, kind)),
                "index": f"{kind}/index.json",
                "schema": f"../../reference/schema/{schema(kind)}",
            }
            for kind in FOLDERS
        },
        "recommendations": "recommendations/index.json",
    }


def _kind(kind: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "kind": kind,
        "schema": f"../../../reference/schema/{schema(kind)}",
        "count": len(found),
        "records": {name: next((each[of] for of in TITLES if each.get(of)), name) for name, each in found.items()},
    }


def grid(book: Book) -> dict[str, Any]:
    """Which questions are answered: of each there is one, with one card and all else left at its default."""
    store = book.store
    return {
        "format": states.FORMAT,
        "lmdeploy": states.release(),
        "command": COMMAND,
        "file": "{model}/{gpu}.json",
        "options": "options.json",
        "models": {name: store.models[name].hub for name in states.MODELS},
        "gpus": {name: store.gpus[name].name for name in states.GPUS},
        "loads": {name: store.loads[name].concurrency for name in states.loads(store)},
        "goals": states.GOALS,
    }


def described(book: Book, _: str) -> Iterator[str]:
    """The kinds of records with their addresses: a part of the page about the interface."""
    rows = (
        (
            f"`{ROOT}/{kind}/index.json`",
            str(len(getattr(book.store, kind))),
            m.text((getdoc(TYPES[kind]) or "").partition("\n")[0]),
            f"[{schema(kind)}](/reference/schema/{schema(kind)})",
        )
        for kind in FOLDERS
    )
    yield from m.table(("File", "Records", "One of them", "Its schema"), rows)


def counted(book: Book, _: str) -> Iterator[str]:
    """How many questions are answered: a part of the same page."""
    kinds = len(states.MODELS), len(states.GPUS), len(states.loads(book.store)), len(states.GOALS)
    many = kinds[0] * kinds[1] * kinds[2] * kinds[3]
    yield f"{kinds[0]} models x {kinds[1]} GPUs x {kinds[2]} loads x {kinds[3]} goals: {many:,} answers"
