"""Markdown and HTML out of a record's text: escaping, tables, links and the places that a fact was read in."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.explain import opened

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.store import Store

Say = Callable[[str], str]
"""Gives a text in the language of the page: ``Book.t``, or nothing but the text."""
REPOSITORY = "https://github.com/InternLM/lmdeploy"
LAST_TAG = Version("0.16.0")
"""The newest release that has a tag in the public repository; later ones exist as wheels only."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
VERDICTS = {
    "confirmed": ("✓", "it is true"),
    "refuted": ("✗", "it is false"),
    "no-effect": ("∅", "the setting changes nothing"),
    "outdated": ("†", "it was true in older releases"),
    "depends": ("◐", "true for some models, cards or loads only"),
    "unverified": ("?", "nobody has checked it yet"),
}
"""Of each verdict its mark and what that means."""


def text(words: str) -> str:
    """Plain text as Markdown shows it: nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]|])", r"\\\1", html.escape(" ".join(words.split()), quote=False))


def prose(store: Store, words: str) -> str:
    """The same, with options of LMDeploy as links to their pages."""
    known = {flag.option: flag.id for flag in store.flags.values()}
    made, end = [], 0
    for found in OPTION.finditer(words):
        made.append(text_piece(words[end : found.start()]))
        made.append(option_link(known[found[0]], found[0]) if found[0] in known else whole(found[0]))
        end = found.end()
    return "".join((*made, text_piece(words[end:]))).strip()


def text_piece(words: str) -> str:
    """A piece of a line: as ``text``, with the blanks at its ends."""
    lead, trail = words[: len(words) - len(words.lstrip())], words[len(words.rstrip()) :]
    return f"{' ' if lead else ''}{text(words)}{' ' if trail and words.strip() else ''}"


def code(words: str) -> str:
    """Text in the fixed-width face; a bar would end a table's cell."""
    return f"<code>{html.escape(words).replace('|', '&#124;').replace('*', '&#42;').replace('_', '&#95;')}</code>"


def whole(name: str) -> str:
    """The same for a name that is not broken in two at the end of a line."""
    return code(name).replace("<code>", '<code class="name">', 1)


def option_link(option: str, name: str) -> str:
    """A link to an option's page."""
    return f"[{whole(name)}](/flags/{option}.md)"


def named_option(store: Store, option: str) -> str:
    """The same from an option's id alone."""
    return option_link(option, name_of(store, option))


def name_of(store: Store, option: str) -> str:
    """An option as people write it."""
    if option in store.flags:
        return store.flags[option].option
    return (store.environment.get(option) or store.client[option]).name


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table; nothing where there are no rows."""
    body = [" | ".join(each or " " for each in row) for row in rows]
    if body:
        yield from ("", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {each} |" for each in body), "")


def facts(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A table of names and what they are; empty ones are left out."""
    yield from table(("", ""), ((f"**{name}**", said) for name, said in pairs if said))


def details(title: str, body: Iterable[str]) -> Iterator[str]:
    """What folds out. ``title`` is plain text."""
    lines = list(body)
    if lines:
        yield from ("", f'??? info "{text(title).replace(chr(34), "&quot;")}"', "")
        yield from (f"    {line}" if line else "" for each in lines for line in each.split("\n"))
        yield ""


def verdict(name: str, say: Say = str) -> str:
    """A verdict with its mark, as the pages show it."""
    return f'<span class="verdict {name}">{VERDICTS[name][0]} {say(name)}</span>'


def unverified(say: Say = str) -> str:
    """What stands where nobody opened a source."""
    return f'<span class="unverified">{say("unverified")}</span>'


def span(since: str, until: str, say: Say = str) -> str:
    """A half-open range of releases in words."""
    return say("{0} up to, not with, {1}" if until else "{0} and later").format(since, until)


def address(source: r.CodeSource) -> str:
    """Where a line can be read on the web; empty for what is in a wheel only."""
    if source.path == "METADATA" or Version(source.release) > LAST_TAG:
        return ""
    return f"{REPOSITORY}/blob/v{source.release}/{source.path}#L{source.line}"


def line_of(source: r.CodeSource, say: Say = str) -> str:
    """One line of LMDeploy: a link to it, or the wheel that has it."""
    where = address(source)
    place = f"{source.path}:{source.line}"
    shown = f"[{source.release} {code(place)}]({where})" if where else f"{source.release} {say('wheel')}, {code(place)}"
    return f"{shown}: {code(source.token)}"


def sources(store: Store, known: r.Sources, say: Say = str) -> Iterator[str]:
    """What a fact rests on as a list; it says so where that is nothing."""
    if not opened(known):
        yield f"- {unverified(say)}: {say('nobody opened a source for it.')}"
    yield from (f"- {line_of(each, say)}" for each in known.code)
    yield from (f"- {page_of(store, each, say)}" for each in known.pages)
    yield from (f"- {say('measured')}: [{each}](/evidence/{each}.md)" for each in known.evidence)


def page_of(store: Store, page: r.PageSource, say: Say = str) -> str:
    """A page on the web, the day it was opened and what stood there, which is in English on every page."""
    said = prose(store, page.says)
    return f"<{page.url}>, {say('opened')} {page.opened}: " + (said if say is str else f'<span lang="en">{said}</span>')


def figure(value: float, digits: int = 1) -> str:
    """A number with thousands apart; a dash for 0, which records use for: not measured."""
    return f"{value:,.{digits}f}" if value else "–"


def shell(words: str, most: int = 60) -> str:
    """A command in lines of at most so many signs, broken before options; it can be copied as it stands."""
    made = [""]
    # A blank before a dash ends a line, but not one between quotation marks.
    for each in re.split(r" (?=-)(?=(?:[^']*'[^']*')*[^']*$)", words):
        if made[-1] and len(made[-1]) + len(each) + 3 > most:
            made.append(f"  {each}")
        else:
            made[-1] += f" {each}" if made[-1] else each
    return "\n```sh\n" + " \\\n".join(made) + "\n```\n"


def heading(level: int, words: str, anchor: str = "") -> str:
    """A heading of plain text, with an anchor that does not change when its words do."""
    return f"\n{'#' * level} {text(words)}{f' {{ #{anchor} }}' if anchor else ''}\n"
