"""Write the static JSON API below ``api/v1/``: every record."""

import json
from collections.abc import Iterator, Mapping
from inspect import getdoc
from typing import Any

from recommender.commands.schema import kebab
from recommender.common.terminal import plain
from recommender.common.version import __version__
from recommender.knowledge.index import TYPES
from recommender.knowledge.records import Record
from recommender.knowledge.store import FOLDERS
from recommender.site import markup
from recommender.site.api import run_details
from recommender.site.site_data import SiteData
from recommender.smoke.record import pack_lists

ROOT = "api/v1"
LICENCE = "Apache-2.0"
FORMAT = 1
TITLES = ("name", "hub", "option", "title", "statement", "summary")
"""Title fields: the index of a kind shows the first one that a record has."""
LEFT_OUT = {"phases": {"__all__": {"drawn"}}}
"""What each request of a phase was: half a megabyte that only a fit reads."""


def files(data: SiteData) -> Iterator[tuple[str, str]]:
    """Yield every file: path below the site's root, and text."""
    yield f"{ROOT}/index.json", compact(index(data))
    for kind in FOLDERS:
        known = records(data, kind)
        yield f"{ROOT}/{kind}/index.json", compact(_kind(kind, known))
        for name, record in known.items():
            yield f"{ROOT}/{kind}/{name}.json", compact(record)
    for path, blocks in run_details.files(data):
        yield path, compact(blocks)


def compact(value: object) -> str:
    """Return JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def records(data: SiteData, kind: str) -> dict[str, Any]:
    """Return the records of a kind as JSON values; evidence is packed, without defaults and ``LEFT_OUT``."""
    whole: Mapping[str, Mapping[str, Record]] = {
        "evidence": data.runs,
        "probes": data.probes,
        "published": data.published,
    }
    if kind in whole:
        dumped = (
            (name, record.model_dump(mode="json", exclude_defaults=True, exclude=LEFT_OUT))
            for name, record in whole[kind].items()
        )
        return {name: pack_lists(record) for name, record in dumped}
    return {name: plain(record) for name, record in getattr(data.store, kind).items()}


def schema(kind: str) -> str:
    """Return the file name of a kind's JSON Schema."""
    return f"{kebab(TYPES[kind].__name__)}.json"


def index(data: SiteData) -> dict[str, Any]:
    """Return the top-level index."""
    return {
        "format": FORMAT,
        "made_by": f"lmdeploy-recommender {__version__}",
        "licence": LICENCE,
        "lmdeploy": [release.id for release in data.releases],
        "read": "kinds[KIND].index lists the records of a kind, KIND/ID.json is one. Paths are relative to this file.",
        "page": "../../reference/api.html",
        "kinds": {
            kind: {
                "count": len(getattr(data.store, kind)),
                "index": f"{kind}/index.json",
                "schema": f"../../reference/schema/{schema(kind)}",
            }
            for kind in FOLDERS
        },
    }


def _kind(kind: str, records_by_id: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "kind": kind,
        "schema": f"../../../reference/schema/{schema(kind)}",
        "count": len(records_by_id),
        "records": {
            name: next((record[field] for field in TITLES if record.get(field)), name)
            for name, record in records_by_id.items()
        },
    }


def kinds_table(data: SiteData, _: str) -> Iterator[str]:
    """Return the table of record kinds for the API page."""
    rows = (
        (
            markup.whole(f"{kind}/index.json"),
            str(len(getattr(data.store, kind))),
            markup.text(data.t((getdoc(TYPES[kind]) or "").partition("\n")[0].replace("``", ""))),
            f"[{schema(kind)}](/reference/schema/{schema(kind)})",
        )
        for kind in FOLDERS
    )
    yield from markup.table(data.labels("File", "Records", "Description", "Schema"), rows)
