"""List the records of one kind, one line each, and search them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from recommender.choose.reasons import has_source
from recommender.common.plain import Plain
from recommender.common.terminal import cut
from recommender.common.text import did_you_mean, shorten
from recommender.common.units import GIB
from recommender.estimate.model_shape import weight_bytes

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.knowledge.store import Store

FORMAT = 1
MIXTURE = "MoE: mixture of experts"
"""Words by which a model with experts is found; few are named for them."""


def _gpu(gpu: records.Gpu) -> str:
    rate = next((rate.tera for rate in gpu.rates if rate.precision == "fp16"), 0.0)
    memory = f"{gpu.compute_capability:>4} {gpu.memory_mib / 1024:>5.1f} GiB {gpu.bandwidth_gb_s:>5,.0f} GB/s"
    return f"{gpu.id:<24} {memory} {rate:>5,.0f} TFLOP/s {_doubt(gpu)}{gpu.name.removeprefix('NVIDIA ')}"


def _model(model: records.Model) -> str:
    kind = model.quantization[0].method if model.quantization else model.text.dtype
    reads = "images" if model.vision else "text"
    return f"{model.id:<30} {weight_bytes(model) / GIB:>5.1f} GiB {kind:<8} {reads:<6} {_doubt(model)}{model.hub}"


def _doubt(record: records.Gpu | records.Model) -> str:
    return "" if has_source(record.sources) else "(unverified) "


def _option(option: Any) -> str:
    if not hasattr(option, "option"):
        return f"{option.name:<28} {'(of a request) ' if option.kind == 'client' else ''}{option.summary}"
    newest = option.eras[-1]
    engine = "" if {"turbomind", "server"} & set(newest.read_by) else "(not TurboMind) "
    note = f"(removed in {newest.until}) " if newest.until else engine
    return f"{option.option:<28} {note}{option.summary}"


def _thread(thread: records.Thread) -> str:
    url = thread.thread.url.removeprefix("https://").removeprefix("github.com/InternLM/lmdeploy/")
    return f"{url:<12} {thread.symptom}"


def _release(release: records.Release) -> str:
    needs = f"CUDA {release.cuda:<3} Python {release.python:<13} torch {release.torch}"
    return f"{release.id:<12} {release.published}  {needs}"


@dataclass(frozen=True, slots=True)
class ListKind:
    """What one list shows: the store's kinds in it, its name for one and for several, and a record's line."""

    kinds: tuple[str, ...]
    singular: str
    plural: str
    line: Callable[[Any], str]


KINDS: Mapping[str, ListKind] = {
    "gpus": ListKind(("gpus",), "GPU", "GPUs", _gpu),
    "models": ListKind(("models",), "model", "models", _model),
    "flags": ListKind(("flags", "environment", "client"), "option", "options", _option),
    "advisers": ListKind(
        ("advisers",), "adviser", "advisers", lambda record: f"{record.id:<9} {record.name}: {record.approach}"
    ),
    "claims": ListKind(
        ("claims",), "claim", "claims", lambda record: f"{record.verdict:<10} {record.id}: {record.statement}"
    ),
    "threads": ListKind(("threads",), "thread", "threads", _thread),
    "releases": ListKind(("releases",), "release", "releases", _release),
}


Catalogue = Sequence[tuple[Any, str]]
"""Records, each with the text that is searched."""


def searchable(store: Store, kind: str) -> list[tuple[Any, str]]:
    """Return the records of a kind in the order of their ids, releases by version, each with its searched text."""
    records = [record for name in KINDS[kind].kinds for record in getattr(store, name).values()]
    if kind == "releases":
        records.sort(key=lambda release: Version(release.id))
    return [(record, fold(" ".join((*_texts(record), _kind(record))))) for record in records]


def _kind(record: Any) -> str:
    return MIXTURE if getattr(getattr(record, "text", None), "mixture", ()) else ""


def search(catalogue: Catalogue, words: Sequence[str]) -> list[Any]:
    """Return the records whose text holds every word, in any case."""
    return [record for record, text in catalogue if all(fold(word) in text for word in words)]


def fold(text: str) -> str:
    """Normalise text for comparison: case folded, underscores as dashes."""
    return text.casefold().replace("_", "-")


def _texts(value: object) -> Iterator[str]:
    """Yield every text of a record, but not what it was read from."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Plain):
        for name, field in vars(value).items():
            if name not in ("sources", "code", "places"):
                yield from _texts(field)


@dataclass(frozen=True, slots=True)
class ListJson:
    """The JSON form of a list."""

    format: int
    kind: str
    """Kind of the records."""
    words: tuple[str, ...]
    """Words that each record holds."""
    count: int
    """Number of records."""
    found: tuple[
        records.Gpu
        | records.Model
        | records.Flag
        | records.Parameter
        | records.Adviser
        | records.Claim
        | records.Thread
        | records.Release,
        ...,
    ]
    """The records, as their YAML files have them."""


def json_form(kind: str, words: Sequence[str], matches: Sequence[Any]) -> ListJson:
    """Return a list ready to be written."""
    return ListJson(FORMAT, kind, tuple(words), len(matches), tuple(matches))


def lines(kind: str, records: Sequence[Any], total: int, width: int = sys.maxsize) -> Iterator[str]:
    """Yield a line for each record, ``width`` columns of it, then their count, and of how many if ``total``."""
    listed = KINDS[kind]
    yield from (cut(listed.line(record), width) for record in records)
    count = f"{len(records)} {listed.singular if len(records) == 1 else listed.plural}"
    yield count + (f" of {total}" if total else "")


def explain_nothing(kind: str, words: Sequence[str], catalogue: Catalogue) -> str:
    """Return why nothing was found: the first word that nothing holds, with what is near it, or all words together."""
    name = KINDS[kind].singular
    counts = {word: len(search(catalogue, [word])) for word in words}
    for word, count in counts.items():
        if not count:
            names = {record.id: None for record, _ in catalogue}
            names |= {part: None for _, text in catalogue for part in re.findall(r"[a-z0-9][\w.-]+\w", text)}
            near = did_you_mean(word, names, f"see recommend list {kind}")
            return f"no {name} has {shorten(word)}{near}"
    listed = ", ".join(f"{shorten(word)} {count}" for word, count in counts.items())
    return f"no {name} has all of these words; each alone finds: {listed}"
