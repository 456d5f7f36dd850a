"""Pages of the options: flags of the server, environment variables, request fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.about import About, Life, about
from recommender.explain import opened
from recommender.explaining import KINDS
from recommender.review import engine
from recommender.review.listing import title
from recommender.site import markup as m
from recommender.site.book import Book, Page, page
from recommender.site.timeline import timeline

if TYPE_CHECKING:
    from recommender import records as r

READERS = {
    "turbomind": "TurboMind",
    "pytorch": "the PyTorch engine",
    "server": "the server",
    "nobody": "nobody",
}
TYPES = {"bool": "a switch", "str": "text", "int": "a whole number", "float": "a number", "json": "JSON"}


def pages(book: Book) -> Iterator[Page]:
    """The index, and a page an option."""
    yield page("flags/index.md", "Flags and settings", _index(book))
    for option in book.store.options():
        found = about(book.store, option, book.newest)
        yield page(f"flags/{option.id}.md", found.name, _option(book, option, found))


def _index(book: Book) -> Iterator[str]:
    store = book.store
    yield (
        f"{len(store.flags)} options of `lmdeploy serve api_server` over {len(book.releases)} releases "
        f"({book.releases[0].id} to {book.newest.id}), {len(store.environment)} environment variables and "
        f"{len(store.client)} fields of a request. Defaults and readers are those of {book.newest.id}, or of the last "
        "release that has the option."
    )
    for topic in sorted({flag.topic for flag in store.flags.values()}):
        yield m.heading(2, topic.capitalize(), topic)
        chosen = [flag for flag in store.flags.values() if flag.topic == topic]
        yield from m.table(("Option", "Default", "Read by", "What it is"), (_row(book, each) for each in chosen))
    for name, kind in (("Environment variables", store.environment), ("Fields of a request", store.client)):
        yield m.heading(2, name)
        rows = ((m.option_link(each.id, each.name), m.prose(store, each.summary)) for each in kind.values())
        yield from m.table(("Name", "What it is"), rows)


def _row(book: Book, flag: r.Flag) -> tuple[str, ...]:
    last = flag.eras[-1]
    gone = f" (gone in {last.until})" if last.until else ""
    readers = ", ".join(READERS[each] for each in last.read_by)
    default = m.code(last.default) if last.default else "none"
    return m.option_link(flag.id, flag.option) + gone, default, readers, m.prose(book.store, flag.summary)


def _option(book: Book, option: r.Option, found: About) -> Iterator[str]:
    store = book.store
    about_it = f", about {found.topic}" if found.topic else ""
    yield f"*{KINDS[found.kind]}{about_it}*\n\n{m.prose(store, found.summary)}"
    if found.summary_vi:
        yield f'\n<p lang="vi">{m.text(found.summary_vi)}</p>'
    yield from _now(book, found)
    if found.lives:
        yield m.heading(2, "Over the releases", "eras")
        yield timeline(book, found)
        yield from eras(book, found)
    yield m.heading(2, "Effect", "effect")
    names = ("memory", "latency", "throughput", "accuracy")
    yield from m.facts((name.capitalize(), m.prose(store, getattr(found, name))) for name in names)
    yield m.heading(2, "How to choose", "choose")
    yield m.prose(store, found.choose)
    yield from _advised(book, found)
    yield from _judged(book, found)
    yield from _met(book, found)
    yield from _rules(option)
    yield from _sources(book, option, found)


def eras(book: Book, found: About) -> Iterator[str]:
    """The eras as a table."""
    head = ("Releases", "Default", "Takes", "Read by", "What to mind")
    yield from m.table(head, (_era(book, each) for each in found.lives))


def _now(book: Book, found: About) -> Iterator[str]:
    if not found.there:
        yield f"\n!!! warning\n\n    Not in LMDeploy {book.newest.id}: a server started with it ends at once.\n"
    python = ", ".join(m.code(each) for each in found.fields)
    default = m.code(found.default) if found.default else "none"
    here = found.there and ((f"Default in {book.newest.id}", default), ("In Python", python))
    yield from m.facts(here or ())


def _era(book: Book, life: Life) -> tuple[str, ...]:
    last = life.last or f"{book.newest.id} (newest)"
    takes = TYPES[life.type]
    if life.choices:
        takes = "one of " + " ".join(m.code(each) for each in life.choices)
    return (
        life.first if life.first == life.last else f"{life.first} to {last}",
        m.code(life.default) if life.default else "none",
        takes,
        ", ".join(READERS[each] for each in life.read_by),
        m.prose(book.store, life.note),
    )


def _advised(book: Book, found: About) -> Iterator[str]:
    if not found.said:
        return
    yield m.heading(2, "What advisers said", "advised")
    rows = []
    told: set[str] = set()
    for each in found.said:
        claims = [c for c in found.judged if each.adviser in c.advisers and c.holds and each.adviser not in told]
        told.add(each.adviser)
        marks = " ".join(f"[{m.verdict(c.verdict)}](/claims.md#{c.claim})" for c in claims)
        value = m.code(each.value) + (f" to {m.code(each.up_to)}" if each.up_to else "")
        passing = "" if each.final else " (in passing)"
        who = f"[{m.text(book.store.advisers[each.adviser].name)}](/advisers/{each.adviser}.md)"
        rows.append((who, value + passing, m.prose(book.store, each.reason), marks))
    yield from m.table(("Adviser", "Value", "Why", "Verdicts on what they said of it"), rows)


def _judged(book: Book, found: About) -> Iterator[str]:
    if found.judged:
        yield m.heading(2, "Claims about it", "claims")
        for each in sorted(found.judged, key=lambda each: not each.holds):
            when = "" if each.holds else f" ({m.span(each.since, each.until)})"
            yield f"- {m.verdict(each.verdict)}{when} [{m.text(each.statement)}](/claims.md#{each.claim})  "
            yield f"  {m.prose(book.store, each.because)}"


def _met(book: Book, found: About) -> Iterator[str]:
    if found.met:
        yield m.heading(2, "Met by users", "threads")
        for each in found.met:
            over = "" if each.possible else f" (releases {m.span(each.since, each.until)})"
            yield f"- [{m.text(each.symptom)}](/threads.md#{each.thread}){over} {m.prose(book.store, each.remedy)}"


def _rules(option: r.Option) -> Iterator[str]:
    ends = (f"flags/{option.id}", f"environment/{option.id}", f"client/{option.id}")
    chosen = [each for each in engine.rules() if set(ends) & set(each.sources)]
    if chosen:
        yield m.heading(2, "Rules of the review that rest on it", "rules")
        yield from (f"- [{each.id}](/rules/{each.id.lower()}.md) {m.text(title(each))}" for each in chosen)


def _sources(book: Book, option: r.Option, found: About) -> Iterator[str]:
    yield m.heading(2, "Sources", "sources")
    reasons = list(dict.fromkeys(line for each in option.reasons for line in _opened(book, each.sources)))
    if opened(found.sources) or not (reasons or any(opened(each.sources) for each in found.lives)):
        yield from m.sources(book.store, found.sources)
    for life in found.lives:
        yield from m.details(
            f"From {life.first}{' to ' + life.last if life.last else ''}", m.sources(book.store, life.sources)
        )
    yield from m.details("Behind the reasons that reports give", reasons)


def _opened(book: Book, known: r.Sources) -> Iterator[str]:
    if opened(known):
        yield from m.sources(book.store, known)
