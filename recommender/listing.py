"""``recommend list``: what the knowledge holds, one line each, with search."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from recommender.explain import opened
from recommender.store import Plain, did_you_mean, load, shorten

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.store import Store

FORMAT = 1
NOTHING = 1
HELP = """\b
Examples:
  recommend list gpus h100
  recommend list models awq internvl
  recommend list claims refuted session
  recommend list threads memory --json

\b
Exit codes: 0 found; 1 nothing found, with what is near; 2 the command line is
wrong.
"""


def _gpu(each: r.Gpu) -> str:
    rate = next((rate.tera for rate in each.rates if rate.precision == "fp16"), 0.0)
    card = f"{each.compute_capability:>4} {each.memory_mib / 1024:>5.1f} GiB {each.bandwidth_gb_s:>5,.0f} GB/s"
    return f"{each.id:<24} {card} {rate:>5,.0f} TFLOP/s {_doubt(each)}{each.name.removeprefix('NVIDIA ')}"


def _model(each: r.Model) -> str:
    from recommender.shapes import weight_bytes

    kind = each.quantization[0].method if each.quantization else each.text.dtype
    sees = "images" if each.vision else "text"
    return f"{each.id:<30} {weight_bytes(each) / 2**30:>5.1f} GiB {kind:<8} {sees:<6} {_doubt(each)}{each.hub}"


def _doubt(each: r.Gpu | r.Model) -> str:
    return "" if opened(each.sources) else "(unverified) "


def _flag(each: r.Flag) -> str:
    newest = each.eras[-1]
    engine = "" if {"turbomind", "server"} & set(newest.read_by) else "(not TurboMind) "
    gone = f"(gone in {newest.until}) " if newest.until else engine
    return f"{each.option:<28} {gone}{each.summary}"


def _parameter(each: r.Parameter) -> str:
    return f"{each.name:<28} {'(of a request) ' if each.kind == 'client' else ''}{each.summary}"


def _adviser(each: r.Adviser) -> str:
    return f"{each.id:<9} {each.name}: {each.approach}"


def _claim(each: r.Claim) -> str:
    return f"{each.verdict:<10} {each.id}: {each.statement}"


def _thread(each: r.Thread) -> str:
    url = each.thread.url.removeprefix("https://").removeprefix("github.com/InternLM/lmdeploy/")
    return f"{url:<12} {each.symptom}"


def _release(each: r.Release) -> str:
    return f"{each.id:<12} {each.published}  CUDA {each.cuda:<3} Python {each.python:<13} torch {each.torch}"


KINDS: Mapping[str, tuple[Sequence[str], tuple[str, str], Callable[[Any], str]]] = {
    "gpus": (("gpus",), ("GPU", "GPUs"), _gpu),
    "models": (("models",), ("model", "models"), _model),
    "flags": (("flags", "environment", "client"), ("option", "options"), lambda each: _option(each)),
    "advisers": (("advisers",), ("adviser", "advisers"), _adviser),
    "claims": (("claims",), ("claim", "claims"), _claim),
    "threads": (("threads",), ("thread", "threads"), _thread),
    "releases": (("releases",), ("release", "releases"), _release),
}
"""Of each kind: the record kinds in it, its name for one and for several, and its line."""


def _option(each: Any) -> str:
    return _flag(each) if hasattr(each, "option") else _parameter(each)


@click.command("list", epilog=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.argument("kind", metavar="KIND", type=click.Choice(list(KINDS)))
@click.argument("words", metavar="[WORD]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="The whole records as JSON.")
def listing(kind: str, words: tuple[str, ...], as_json: bool) -> None:
    """List what is known, one line each: KIND is gpus, models, flags, advisers, claims, threads or releases.

    With words only what holds all of them, in any case, in its names or text.
    """
    from recommender import terminal

    known = records(load(), kind)
    found = [each for each, text in known if all(folded(word) in text for word in words)]
    _, (one, several), line = KINDS[kind]
    if as_json:
        terminal.show_json(published(kind, words, found))
    elif found:
        said = f"{len(found)} {one if len(found) == 1 else several}"
        terminal.show([*(terminal.cut(line(each)) for each in found), said + (f" of {len(known)}" if words else "")])
    if not found:
        click.echo(f"recommend: {missing(one, words, known)}", err=True)
        sys.exit(NOTHING)


def published(kind: str, words: Sequence[str], found: Sequence[object]) -> dict[str, object]:
    """The JSON form: format, kind, words, count, and ``found``: the records as their YAML files have them."""
    return {"format": FORMAT, "kind": kind, "words": list(words), "count": len(found), "found": found}


def records(store: Store, kind: str) -> list[tuple[Any, str]]:
    """The records of a kind in the order of their ids, each with the text that is searched. Releases by version."""
    known = [each for name in KINDS[kind][0] for each in getattr(store, name).values()]
    found = [(each, folded(" ".join(_texts(each)))) for each in known]
    if kind == "releases":
        from packaging.version import Version

        found.sort(key=lambda item: Version(item[0].id))
    return found


def folded(text: str) -> str:
    """Text as it is compared: without case, and with dashes where people write underscores too."""
    return text.casefold().replace("_", "-")


def _texts(value: object) -> Iterator[str]:
    """Every text of a record but what it was read from."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Plain):
        for name, each in vars(value).items():
            if name not in ("sources", "code", "places"):
                yield from _texts(each)


def missing(one: str, words: Sequence[str], known: Sequence[tuple[Any, str]]) -> str:
    """Why nothing was found, in one line: the first word that nothing holds with what is near it, or all together."""
    for word in words:
        if not any(folded(word) in text for _, text in known):
            names = {each.id: None for each, _ in known}
            names |= {part: None for _, text in known for part in re.findall(r"[a-z0-9][\w.-]+\w", text)}
            return f"no {one} has {shorten(word)}{did_you_mean(word, names)}"
    counts = (f"{shorten(word)} {sum(folded(word) in text for _, text in known)}" for word in words)
    return f"no {one} has all of these words; alone they find: {', '.join(counts)}"
