"""Render texts of records as Markdown and HTML: escaping, tables, links and sources."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import indent
from typing import TYPE_CHECKING

from recommender.choose.reasons import has_source
from recommender.knowledge.provenance import code_caveat, measured_lines, web_address

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.knowledge.store import Store

Say = Callable[[str], str]
"""Translates a text: ``SiteData.t``, or ``str`` in English."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
SCHEME = re.compile(r"^https?://(?:www\.)?")
COMMIT = re.compile(r"/([0-9a-f]{8})[0-9a-f]{32}\b")
FIGURES = re.compile(r"[\d.,]+[×%]?|\d{4}-\d\d-\d\d|[– ]")
"""A cell of a column of figures, or of days."""
VERDICTS = {
    "confirmed": ("✓", "it is true"),
    "refuted": ("✗", "it is false"),
    "no-effect": ("∅", "the setting changes nothing"),
    "outdated": ("†", "it was true in older releases"),
    "depends": ("◐", "true only for some models, GPUs or loads"),
    "unverified": ("?", "not checked yet"),
}
"""Mark and meaning of each verdict."""


def text(words: str) -> str:
    """Escape plain text for Markdown."""
    return re.sub(r"([\\`*_{}\[\]|])", r"\\\1", html.escape(" ".join(words.split()), quote=False))


def prose(store: Store, words: str) -> str:
    """Escape plain text and link LMDeploy options to their pages."""
    known = {flag.option: flag.id for flag in store.flags.values()}
    pieces, end = [], 0
    for option in OPTION.finditer(words):
        pieces.append(text_piece(words[end : option.start()]))
        pieces.append(option_link(known[option[0]], option[0]) if option[0] in known else whole(option[0]))
        end = option.end()
    return "".join((*pieces, text_piece(words[end:]))).strip()


def text_piece(words: str) -> str:
    """Escape a piece of a line and keep the spaces at its ends."""
    lead, trail = words[: len(words) - len(words.lstrip())], words[len(words.rstrip()) :]
    return f"{' ' if lead else ''}{text(words)}{' ' if trail and words.strip() else ''}"


def code(words: str) -> str:
    """Return text as code; a bar is escaped because it would end a table cell."""
    return f"<code>{html.escape(words).replace('|', '&#124;').replace('*', '&#42;').replace('_', '&#95;')}</code>"


def whole(name: str) -> str:
    """Return a name as code that does not wrap."""
    return code(name).replace("<code>", '<code class="name">', 1)


def model_link(model: records.Model) -> str:
    """Return a link to a model's page."""
    return f"[{text(model.hub)}](/models/{model.id}.md)"


def option_link(option: str, name: str) -> str:
    """Return a link to an option's page."""
    return f"[{whole(name)}](/flags/{option}.md)"


def named_option(store: Store, option: str) -> str:
    """Return a link to an option's page from its id."""
    return option_link(option, name_of(store, option))


def name_of(store: Store, option: str) -> str:
    """Return an option's name as written in a script."""
    if option in store.flags:
        return store.flags[option].option
    return (store.environment.get(option) or store.client[option]).name


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return a Markdown table, or nothing without rows."""
    cells = [[cell or " " for cell in row] for row in rows]
    body = [" | ".join(row) for row in cells]
    if body:
        _, *columns = zip(*cells, strict=True)
        ends = " --- |" + "".join(" ---: |" if _are_figures(column) else " --- |" for column in columns)
        yield from ("", f"| {' | '.join(head)} |", f"|{ends}", *(f"| {row} |" for row in body), "")


def _are_figures(column: Sequence[str]) -> bool:
    """Return whether a column holds figures, so that they stand one below the other at the right."""
    return all(map(FIGURES.fullmatch, column)) and any(cell.strip("– ") for cell in column)


def resolved(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Return a table of names and values; empty values are left out."""
    yield from table(("", ""), ((f"**{name}**", value) for name, value in pairs if value))


def details(title: str, body: Iterable[str]) -> Iterator[str]:
    """Return a block that folds out. ``title`` is plain text."""
    lines = "\n".join(body)
    if lines:
        yield from ("", f'??? info "{text(title).replace(chr(34), "&quot;")}"', "", indent(lines, "    "), "")


def verdict(name: str, say: Say = str) -> str:
    """Return a verdict with its mark."""
    return f'<span class="verdict {name}">{VERDICTS[name][0]} {say(name)}</span>'


def claim(verdict_name: str, statement: str, anchor: str, say: Say = str) -> str:
    """Return a verdict and a link to its claim."""
    return f"{verdict(verdict_name, say)} [{text(say(statement))}](/claims.md#{anchor})"


def unverified(say: Say = str) -> str:
    """Return the mark of a fact without a source."""
    return f'<span class="unverified">{say("unverified")}</span>'


def span(since: str, until: str, say: Say = str) -> str:
    """Return a half-open range of releases as text."""
    return say("{0} up to but not including {1}" if until else "{0} and later").format(since, until)


def line_of(store: Store, source: records.CodeSource, say: Say = str) -> str:
    """Return a link to a line of LMDeploy, or the wheel that has it."""
    where = web_address(store, source)
    place = f"{source.path}:{source.line}"
    shown = f"[{source.release} {code(place)}]({where})" if where else f"{source.release} {say('wheel')}, {code(place)}"
    return f"{shown}: {code(source.token)}"


def sources(store: Store, fact_sources: records.Sources, say: Say = str, release: str = "") -> Iterator[str]:
    """Return the sources of a fact as a list; say so if there are none.

    ``release``: the newest that the fact is about; what limits the sources for it is said. Empty: any of them.
    """
    if not has_source(fact_sources):
        yield f"- {unverified(say)}: {say('no source was read.')}"
    yield from (f"- {line_of(store, line, say)}" for line in fact_sources.code)
    if caveat := release and code_caveat(store, fact_sources, release, say):
        yield f"- {text(caveat)}"
    yield from (f"- {page_of(store, page, say)}" for page in fact_sources.pages)
    yield from (f"- {say('measured')}: [{run}](/runs.md#{run})" for run in fact_sources.evidence)


def reason(store: Store, claim: str, because: str, say: Say = str) -> str:
    """Return a claim's reason, and below it, folded, what its runs measured under all loads."""
    measured = "<br>".join(prose(store, line) for line in measured_lines(store, claim, say))
    folded = f' <details class="figures"><summary>{say("Measured")}</summary>{measured}</details>'
    return prose(store, say(because)) + (folded if measured else "")


FIRST_HAND = re.compile(
    r"https?://(?:[\w-]+\.)*(?:github\.com|huggingface\.co|nvidia\.com|llama\.com|pypi\.org|arxiv\.org)/"
)
"""Pages of those who make a card, a model or a program, and repositories."""


def page_of(store: Store, page: records.PageSource, say: Say = str) -> str:
    """Return a web page with the date it was read, whether it is a third party's, and the quote in English."""
    quote = prose(store, page.says)
    quote = quote if say is str else f'<span lang="en">{quote}</span>'
    other = "" if FIRST_HAND.match(page.url) else f" ({say('third party')})"
    return f"{address_link(page.url)}{other}, {say('opened')} {page.opened}: {quote}"


def address_link(address: str) -> str:
    """Return a link to a web page: its address without the scheme, and a commit by its first letters."""
    short = COMMIT.sub(r"/\1", SCHEME.sub("", address))
    return f"[{text(short)}](<{address}>)"


def figure(value: float, digits: int = 1) -> str:
    """Format a number; 0 means not measured and becomes a dash."""
    return f"{value:,.{digits}f}" if value else "–"


def shell(words: str, most: int = 60) -> str:
    """Return a command as a code block, wrapped before options at ``most`` characters."""
    lines = [""]
    # Wrap at a space before a dash, but not inside quotes.
    for option in re.split(r" (?=-)(?=(?:[^']*'[^']*')*[^']*$)", words):
        if lines[-1] and len(lines[-1]) + len(option) + 3 > most:
            lines.append(f"  {option}")
        else:
            lines[-1] += f" {option}" if lines[-1] else option
    return "\n```sh\n" + " \\\n".join(lines) + "\n```\n"


def heading(level: int, words: str, anchor: str = "") -> str:
    """Return a heading of plain text with a fixed anchor."""
    return f"\n{'#' * level} {text(words)}{f' {{ #{anchor} }}' if anchor else ''}\n"
