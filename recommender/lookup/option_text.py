"""Write what is known of one option as JSON or as text of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from recommender.choose.reasons import range_text
from recommender.common.terminal import block, labelled, wrap
from recommender.lookup.option import KnownIssue, OptionAdvice, OptionEra, OptionInfo, OptionVerdict
from recommender.render.summary import cite

FORMAT = 1
"""Version of the JSON form; it rises when a field changes its meaning."""
KINDS = {
    "flag": "option of lmdeploy serve api_server",
    "environment": "environment variable of the server",
    "client": "field of each request",
}
TYPES = {"str": "text", "int": "a whole number", "float": "a number", "json": "JSON"}
READERS = {"turbomind": "TurboMind", "pytorch": "the PyTorch engine", "server": "the server", "nobody": "nothing"}


def lines(option: OptionInfo, vi: bool = False) -> Iterator[str]:
    """Yield the text, in Vietnamese where asked for and known."""
    yield from heading(option, vi)
    yield ""
    yield "EFFECT"
    for name in ("memory", "latency", "throughput", "accuracy"):
        yield from labelled(name, getattr(option, name))
    yield from labelled("choose", option.choose)
    if len(option.lives) > 1 or any(era.last or era.first != "0.7.0" for era in option.lives):
        yield from block("HISTORY", _eras(option.lives))
    yield from block("ADVICE", (line for advice in option.said for line in _advice(advice, vi)))
    for title, holds in (("VERDICTS FOR THIS RELEASE", True), ("VERDICTS FOR OTHER RELEASES", False)):
        verdicts = (verdict for verdict in option.judged if verdict.holds == holds)
        yield from block(title, (line for verdict in verdicts for line in _verdict(verdict)))
    issues = sorted(option.met, key=lambda issue: not issue.possible)
    yield from block("KNOWN ISSUES", (line for issue in issues for line in _issue(issue)))
    yield from _sources(option)


def heading(option: OptionInfo, vi: bool = False) -> Iterator[str]:
    """Yield what the option is, and its form in this release."""
    topic = f", about {option.topic}" if option.topic else ""
    yield from wrap(f"{option.name} in LMDeploy {option.release}: {KINDS[option.kind]}{topic}")
    yield from wrap((option.summary_vi if vi else "") or option.summary, "  ", "  ")
    yield from block("IN THIS RELEASE", _current(option))


def _current(option: OptionInfo) -> Iterator[str]:
    if not option.there:
        spans = ", ".join(_span(era) for era in option.lives)
        yield from wrap(f"Not available: a server started with it exits at once. Available in {spans}.", "  ", "  ")
        return
    yield from labelled("default", option.default or "none")
    for era in option.lives:
        if era.now:
            yield from labelled("values", _values(era))
            yield from labelled("read by", _readers(era))
            if era.note:
                yield from labelled("warning", era.note)
    if option.fields:
        yield from labelled("in Python", ", ".join(option.fields))


def _span(era: OptionEra) -> str:
    if era.first == era.last:
        return era.first
    return f"{era.first} to {era.last}" if era.last else f"{era.first} and later"


def _values(era: OptionEra) -> str:
    if era.type == "bool":
        return "no value: a switch"
    return f"one of {', '.join(era.choices)}" if era.choices else TYPES[era.type]


def _readers(era: OptionEra) -> str:
    return ", ".join(READERS[reader] for reader in era.read_by)


def _eras(eras: tuple[OptionEra, ...]) -> Iterator[str]:
    """Yield each era with what changed since the one before."""
    before: dict[str, str] = {}
    for era in eras:
        yield f"  {_span(era)}{'  <- here' if era.now else ''}"
        facts = {"default": era.default or "none", "values": _values(era), "read by": _readers(era)}
        for name, text in facts.items():
            if before.get(name) != text:
                yield from labelled(name, text, indent="    ")
        if era.note:
            yield from wrap(era.note, "    ", "    ")
        before = facts


def _advice(advice: OptionAdvice, vi: bool) -> list[str]:
    value = range_text(advice.value, advice.up_to)
    passing = "" if advice.final else " (mentioned only)"
    reason = (advice.reason_vi if vi else "") or advice.reason
    return labelled(advice.adviser, f"{value}{passing}" + (f": {reason}" if reason else ""))


def _verdict(verdict: OptionVerdict) -> Iterator[str]:
    when = "" if verdict.holds else f" [{verdict.since} until {verdict.until or 'now'}]"
    who = f" ({', '.join(verdict.advisers)})" if verdict.advisers else ""
    yield from wrap(f"{verdict.verdict}: {verdict.statement}{who}{when}", "  ", "    ")
    for text in (verdict.because, *verdict.measured):
        yield from wrap(text, "    ", "    ")
    yield from wrap(f"[{cite(verdict.sources, verdict.caveat)}]", "    ", "    ")


def _issue(issue: KnownIssue) -> Iterator[str]:
    over = "" if issue.possible else f" (not in this release: {issue.since} until {issue.until})"
    yield from wrap(f"{issue.symptom}{over}", "  ", "    ")
    yield from wrap(f"cause: {issue.cause}", "    ", "    ")
    yield from wrap(f"fix: {issue.remedy}", "    ", "    ")
    yield f"    {issue.url}"


def _sources(option: OptionInfo) -> Iterator[str]:
    """Yield code and pages of the option and of the release's era; of all eras where the release has no such option."""
    eras = [era.sources for era in option.lives if era.now or not option.there]
    cited = [option.sources, *eras]
    code = dict.fromkeys(
        (place.release, place.path, place.line, place.token) for sources in cited for place in sources.code
    )
    pages = dict.fromkeys(page.url for sources in cited for page in sources.pages)
    yield ""
    yield "SOURCES" if code or pages else "UNVERIFIED"
    if not code and not pages:
        yield "  no source was checked"
    for release, path, line, token in code:
        yield from wrap(f"{release} {path}:{line}  {token}", "  ", "    ")
    lives = [era.caveat for era in option.lives if era.now or not option.there]
    yield from (f"  {caveat}" for caveat in dict.fromkeys([option.caveat, *lives]) if caveat)
    yield from (f"  {url}" for url in pages)
