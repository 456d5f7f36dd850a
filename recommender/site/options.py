"""Pages of the options: flags of the server, environment variables, request fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.about import About, Judged, Life, Said, about
from recommender.explain import opened
from recommender.explaining import KINDS
from recommender.review import engine
from recommender.review.listing import title
from recommender.site import charts
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


GUIDE = "guide"
"""The adviser whose options have pages in its own language too."""


def pages(book: Book) -> Iterator[Page]:
    """The index, and a page an option; in another language than English, one an option of the guide."""
    yield page("flags/index.md", book.t("Flags and settings"), _index(book))
    for option in book.store.options():
        if book.english or option.id in guided(book):
            found = about(book.store, option, book.newest)
            yield page(f"flags/{option.id}.md", found.name, _option(book, option, found))


def guided(book: Book) -> set[str]:
    """The options that have pages in other languages too."""
    return {each.option for each in book.store.advisers[GUIDE].settings if each.final}


def _index(book: Book) -> Iterator[str]:
    store = book.store
    yield book.t(
        "{flags} options of `lmdeploy serve api_server` over {releases} releases ({first} to {last}), {variables} "
        "environment variables and {fields} fields of a request. Defaults and readers are those of {last}, or of the "
        "last release that has the option."
    ).format(
        flags=len(store.flags),
        releases=len(book.releases),
        first=book.releases[0].id,
        last=book.newest.id,
        variables=len(store.environment),
        fields=len(store.client),
    )
    for topic in sorted({flag.topic for flag in store.flags.values()}):
        yield m.heading(2, book.t(topic.capitalize()), topic)
        chosen = [flag for flag in store.flags.values() if flag.topic == topic]
        head = [book.t(each) for each in ("Option", "Default", "Read by", "What it is")]
        yield from m.table(head, (_row(book, each) for each in chosen))
    for name, kind in (("Environment variables", store.environment), ("Fields of a request", store.client)):
        yield m.heading(2, book.t(name), name.lower().replace(" ", "-"))
        rows = ((m.option_link(each.id, each.name), m.prose(store, book.t(each.summary))) for each in kind.values())
        yield from m.table((book.t("Name"), book.t("What it is")), rows)


def _row(book: Book, flag: r.Flag) -> tuple[str, ...]:
    last = flag.eras[-1]
    gone = f" ({book.t('gone in {0}').format(last.until)})" if last.until else ""
    summary = _own(book, flag.summary, flag.summary_vi)
    return m.option_link(flag.id, flag.option) + gone, _default(book, last.default), _readers(book, last), summary


def _own(book: Book, english: str, vietnamese: str) -> str:
    """A text in the page's language: the record's own where it has one."""
    return m.prose(book.store, vietnamese if vietnamese and book.language == "vi" else book.t(english))


def _default(book: Book, value: str) -> str:
    return m.code(value) if value else book.t("none")


def _readers(book: Book, life: Life | r.Era) -> str:
    return ", ".join(book.t(READERS[each]) for each in life.read_by)


def _option(book: Book, option: r.Option, found: About) -> Iterator[str]:
    store = book.store
    kind = book.t(KINDS[found.kind])
    about_it = f", {book.t('about {0}').format(book.t(found.topic.capitalize()).lower())}" if found.topic else ""
    yield f"*{kind}{about_it}*\n\n{_own(book, found.summary, found.summary_vi)}"
    if book.english and found.summary_vi and option.id not in guided(book):
        yield f'\nIn Vietnamese: <span lang="vi">{m.text(found.summary_vi)}</span>\n'
    yield from _now(book, found)
    if not book.english:
        yield from _guided(book, found)
    if found.lives:
        yield m.heading(2, book.t("Over the releases"), "eras")
        yield timeline(book, found)
        yield from eras(book, found)
    yield m.heading(2, book.t("Effect"), "effect")
    names = ("memory", "latency", "throughput", "accuracy")
    yield from m.facts((book.t(name.capitalize()), m.prose(store, book.t(getattr(found, name)))) for name in names)
    yield from charts.for_option(book, option)
    yield m.heading(2, book.t("How to choose"), "choose")
    yield m.prose(store, book.t(found.choose))
    yield from _advised(book, found)
    yield from _judged(book, found)
    yield from _met(book, found)
    yield from _rules(book, option)
    yield from _sources(book, option, found)


def eras(book: Book, found: About) -> Iterator[str]:
    """The eras as a table."""
    head = ("Releases", "Default", "Takes", "Read by", "What to mind")
    yield from m.table([book.t(each) for each in head], (_era(book, each) for each in found.lives))


def _now(book: Book, found: About) -> Iterator[str]:
    if not found.there:
        gone = book.t("Not in LMDeploy {0}: a server started with it ends at once.").format(book.newest.id)
        yield f'\n!!! warning "{book.t("Warning")}"\n\n    {gone}\n'
        return
    python = ", ".join(m.code(each) for each in found.fields)
    default = book.t("Default in {0}").format(book.newest.id)
    yield from m.facts(((default, _default(book, found.default)), (book.t("In Python"), python)))


def _era(book: Book, life: Life) -> tuple[str, ...]:
    last = life.last or book.t("{0} (newest)").format(book.newest.id)
    takes = book.t(TYPES[life.type])
    if life.choices:
        takes = book.t("one of {0}").format(" ".join(m.whole(each) for each in life.choices))
    return (
        life.first if life.first == life.last else book.t("{0} to {1}").format(life.first, last),
        _default(book, life.default),
        takes,
        _readers(book, life),
        m.prose(book.store, book.t(life.note)),
    )


def _value(book: Book, said: Said) -> str:
    """What an adviser gave."""
    shown = m.code(said.value)
    if said.up_to:
        shown = book.t("{0} to {1}").format(shown, m.code(said.up_to))
    return shown if said.final else f"{shown} ({book.t('in passing')})"


def _guided(book: Book, found: About) -> Iterator[str]:
    """What the guide says, before all others: its pages are for those who read its language."""
    yield m.heading(2, book.t("What the guide advises"), "guide")
    for each in found.said:
        if each.adviser == GUIDE:
            yield f"- {_value(book, each)}: {_own(book, each.reason, each.reason_vi)}"
    verdicts = [each for each in found.judged if GUIDE in each.advisers and each.holds]
    if verdicts:
        yield f"\n{book.t('Whether that is so:')}\n"
    for claim in verdicts:
        yield f"- {_claim(book, claim)}  "
        yield f"  {m.prose(book.store, book.t(claim.because))}"
    yield ""


def _advised(book: Book, found: About) -> Iterator[str]:
    others = [each for each in found.said if book.english or each.adviser != GUIDE]
    if not others:
        return
    yield m.heading(2, book.t("What advisers said" if book.english else "What other advisers said"), "advised")
    rows = []
    told: set[str] = set()
    for each in others:
        claims = [c for c in found.judged if each.adviser in c.advisers and c.holds and each.adviser not in told]
        told.add(each.adviser)
        marks = " ".join(f"[{m.verdict(c.verdict, book.say)}](/claims.md#{c.claim})" for c in claims)
        who = f"[{m.text(book.t(book.store.advisers[each.adviser].name))}](/advisers/{each.adviser}.md)"
        rows.append((who, _value(book, each), _own(book, each.reason, each.reason_vi), marks))
    head = ("Adviser", "Value", "Why", "Verdicts on what they said of it")
    yield from m.table([book.t(each) for each in head], rows)


def _claim(book: Book, each: Judged) -> str:
    shown = m.verdict(each.verdict, book.say)
    when = "" if each.holds else f" ({m.span(each.since, each.until, book.say)})"
    return f"{shown}{when} [{m.text(book.t(each.statement))}](/claims.md#{each.claim})"


def _judged(book: Book, found: About) -> Iterator[str]:
    if found.judged:
        yield m.heading(2, book.t("Claims about it"), "claims")
        for each in sorted(found.judged, key=lambda each: not each.holds):
            yield f"- {_claim(book, each)}  "
            yield f"  {m.prose(book.store, book.t(each.because))}"


def _met(book: Book, found: About) -> Iterator[str]:
    if found.met:
        yield m.heading(2, book.t("Met by users"), "threads")
        for each in found.met:
            over = "" if each.possible else f" ({book.t('releases')} {m.span(each.since, each.until, book.say)})"
            remedy = m.prose(book.store, book.t(each.remedy))
            yield f"- [{m.text(book.t(each.symptom))}](/threads.md#{each.thread}){over} {remedy}"


def _rules(book: Book, option: r.Option) -> Iterator[str]:
    ends = (f"flags/{option.id}", f"environment/{option.id}", f"client/{option.id}")
    chosen = [each for each in engine.rules() if set(ends) & set(each.sources)]
    if chosen:
        yield m.heading(2, book.t("Rules of the review that rest on it"), "rules")
        yield from (f"- [{each.id}](/rules/{each.id.lower()}.md) {m.text(book.t(title(each)))}" for each in chosen)


def _sources(book: Book, option: r.Option, found: About) -> Iterator[str]:
    yield m.heading(2, book.t("Sources"), "sources")
    if not book.english:
        yield book.t("What stood on the pages that were opened is told in English, as the records have it.") + "\n"
    reasons = list(dict.fromkeys(line for each in option.reasons for line in _opened(book, each.sources)))
    if opened(found.sources) or not (reasons or any(opened(each.sources) for each in found.lives)):
        yield from m.sources(book.store, found.sources, book.say)
    for life in found.lives:
        span = book.t("From {0} to {1}" if life.last else "From {0}").format(life.first, life.last)
        yield from m.details(span, m.sources(book.store, life.sources, book.say))
    yield from m.details(book.t("Behind the reasons that reports give"), reasons)


def _opened(book: Book, known: r.Sources) -> Iterator[str]:
    if opened(known):
        yield from m.sources(book.store, known, book.say)
