"""``recommend explain``: everything known of one option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from recommender.about import About, Judged, Life, Met, Said

FORMAT = 1
KINDS = {
    "flag": "option of lmdeploy serve api_server",
    "environment": "environment variable of the server",
    "client": "field of each request",
}
HELP = """\b
FLAG is an option in any spelling, an environment variable, a field of a request
or of TurbomindEngineConfig.

\b
Examples:
  recommend explain --session-len
  recommend explain quant_policy --lmdeploy 0.9.2
  recommend explain OMP_NUM_THREADS --json
"""


def _options(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """For completion by the Tab key: names that begin so, options without their dashes."""
    from recommender.store import load

    store = load()
    names = (*store.flags, *(each.name for kind in (store.environment, store.client) for each in kind.values()))
    return [each for each in names if each.startswith(begun)]


@click.command(
    epilog=HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 80,
        "ignore_unknown_options": True,  # a flag is what this command asks for
    },
)
@click.argument("flag", type=click.UNPROCESSED, shell_complete=_options)
@click.option("--lmdeploy", metavar="VERSION", help="The release to explain it for. [the newest]")
@click.option("--vi", is_flag=True, help="In Vietnamese where the knowledge is.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, complete.")
def explain(flag: str, lmdeploy: str | None, vi: bool, as_json: bool) -> None:
    """Tell what an option does, its life over the releases, and what was said, judged and met."""
    from recommender import terminal
    from recommender.about import about, resolve_option
    from recommender.conditions import version
    from recommender.facts import resolve_release
    from recommender.store import load

    store = load()
    option = resolve_option(store, flag)
    release = resolve_release(store, lmdeploy) if lmdeploy else store.releases[max(store.releases, key=version)]
    found = about(store, option, release)
    if as_json:
        terminal.show_json(published(found))
    else:
        terminal.show(lines(found, vi=vi))


def published(found: About) -> dict[str, object]:
    """The JSON form: ``format``, which rises when a field changes its meaning, and the fields of ``About``.

    ``lives`` are the eras over the releases (first, last, now, type, default, choices, read_by, note, sources),
    ``said`` what advisers gave, ``judged`` the claims with verdicts, ``met`` the threads.
    """
    from recommender.terminal import plain

    made: dict[str, object] = {"format": FORMAT} | plain(found)
    return made


def lines(found: About, vi: bool = False) -> Iterator[str]:
    """The text of 80 columns."""
    from recommender.terminal import labelled, wrap

    topic = f", about {found.topic}" if found.topic else ""
    yield from wrap(f"{found.name} in LMDeploy {found.release}: {KINDS[found.kind]}{topic}")
    if vi and found.summary_vi:
        yield from wrap(found.summary_vi, "  ", "  ")
    else:
        yield from wrap(found.summary, "  ", "  ")
    yield ""
    yield "AS IT IS"
    yield from _now(found)
    yield ""
    yield "EFFECT"
    for name in ("memory", "latency", "throughput", "accuracy"):
        yield from labelled(name, getattr(found, name))
    yield from labelled("choose", found.choose)
    if len(found.lives) > 1 or any(each.last or each.first != "0.7.0" for each in found.lives):
        yield ""
        yield "OVER THE RELEASES"
        before: Life | None = None
        for life in found.lives:
            yield from _life(life, before)
            before = life
    yield from _sayings(found, vi)
    yield from _verdicts(found)
    yield from _meetings(found)
    yield from _places(found)


def _now(found: About) -> Iterator[str]:
    from recommender.terminal import labelled, wrap

    if not found.there:
        spans = ", ".join(_span(each) for each in found.lives)
        yield from wrap(f"Not there: a server started with it ends at once. It is in {spans}.", "  ", "  ")
        return
    yield from labelled("default", found.default or "none")
    for each in found.lives:
        if each.now:
            yield from labelled("takes", _takes(each))
            yield from labelled("read by", _readers(each))
            if each.note:
                yield from labelled("mind", each.note)
    if found.fields:
        yield from labelled("in Python", ", ".join(found.fields))


def _span(life: Life) -> str:
    if life.first == life.last:
        return life.first
    return f"{life.first} to {life.last}" if life.last else f"{life.first} and later"


def _takes(life: Life) -> str:
    if life.type == "bool":
        return "no value: it is a switch"
    kind = {"str": "text", "int": "a whole number", "float": "a number", "json": "JSON"}[life.type]
    return f"one of {', '.join(life.choices)}" if life.choices else kind


def _readers(life: Life) -> str:
    names = {"turbomind": "TurboMind", "pytorch": "the PyTorch engine", "server": "the server", "nobody": "nobody"}
    return ", ".join(names[each] for each in life.read_by)


def _life(life: Life, before: Life | None) -> Iterator[str]:
    from recommender.terminal import labelled, wrap

    yield f"  {_span(life)}{'  <- here' if life.now else ''}"
    for name, said in (("default", life.default or "none"), ("takes", _takes(life)), ("read by", _readers(life))):
        old = before and {"default": before.default or "none", "takes": _takes(before), "read by": _readers(before)}
        if not old or old[name] != said:
            yield from labelled(name, said, indent="    ")
    if life.note:
        yield from wrap(life.note, "    ", "    ")


def _sayings(found: About, vi: bool) -> Iterator[str]:
    from recommender.terminal import labelled

    if found.said:
        yield ""
        yield "ADVISED"
    for each in found.said:
        yield from labelled(each.adviser, _saying(each, vi))


def _saying(each: Said, vi: bool) -> str:
    value = f"{each.value} to {each.up_to}" if each.up_to else each.value
    passing = "" if each.final else " (in passing)"
    reason = (each.reason_vi if vi else "") or each.reason
    return f"{value}{passing}" + (f": {reason}" if reason else "")


def _verdicts(found: About) -> Iterator[str]:
    if any(each.holds for each in found.judged):
        yield ""
        yield "JUDGED FOR THIS RELEASE"
    for each in found.judged:
        if each.holds:
            yield from _verdict(each)
    if any(not each.holds for each in found.judged):
        yield ""
        yield "JUDGED FOR OTHER RELEASES"
    for each in found.judged:
        if not each.holds:
            yield from _verdict(each)


def _verdict(each: Judged) -> Iterator[str]:
    from recommender.render import cite
    from recommender.terminal import wrap

    when = "" if each.holds else f" [{each.since} up to before {each.until or 'now'}]"
    who = f" ({', '.join(each.advisers)})" if each.advisers else ""
    yield from wrap(f"{each.verdict}: {each.statement}{who}{when}", "  ", "    ")
    yield from wrap(each.because, "    ", "    ")
    yield from wrap(f"[{cite(each.sources)}]", "    ", "    ")


def _meetings(found: About) -> Iterator[str]:
    if found.met:
        yield ""
        yield "MET BY USERS"
    for each in sorted(found.met, key=lambda each: not each.possible):
        yield from _meeting(each)


def _meeting(each: Met) -> Iterator[str]:
    from recommender.terminal import wrap

    over = f" (not in this release: {each.since} up to before {each.until})" if not each.possible else ""
    yield from wrap(f"{each.symptom}{over}", "  ", "    ")
    yield from wrap(f"why: {each.cause}", "    ", "    ")
    yield from wrap(f"mend: {each.remedy}", "    ", "    ")
    yield f"    {each.url}"


def _places(found: About) -> Iterator[str]:
    """Code of the option and of the era that the release is in; pages by their address."""
    from recommender.terminal import wrap

    code = list(found.sources.code)
    pages = list(found.sources.pages)
    for each in found.lives:
        if each.now or not found.there:
            code += each.sources.code
            pages += each.sources.pages
    yield ""
    yield "READ IN" if code or pages else "UNVERIFIED"
    if not code and not pages:
        yield "  nobody opened a source for it"
    for place in dict.fromkeys((each.release, each.path, each.line, each.token) for each in code):
        yield from wrap(f"{place[0]} {place[1]}:{place[2]}  {place[3]}", "  ", "    ")
    for page in dict.fromkeys(each.url for each in pages):
        yield f"  {page}"
