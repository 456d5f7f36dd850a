"""The rules as a list, and one rule's page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recommender.render import count
from recommender.review import engine
from recommender.review.output import sources_of
from recommender.review.rule import Rule
from recommender.terminal import cut, wrap

FAMILIES = {
    "starts": "STARTS AT ALL",
    "answers": "ANSWERS THE WORKLOAD",
    "nothing": "DOES NOTHING",
    "costs": "COSTS MEMORY OR SPEED",
    "safety": "SAFETY",
    "operations": "OPERATIONS",
}


def table(rules: Iterable[Rule]) -> Iterator[str]:
    """A line a rule, by family: id, severity, what it needs to be told, title."""
    known = list(rules)
    for family, heading in FAMILIES.items():
        chosen = [each for each in known if each.family == family]
        if not chosen:
            continue
        yield heading
        for each in chosen:
            needs = f" (needs {', '.join(f'--{need}' for need in each.needs)})" if each.needs else ""
            yield cut(f"  {each.id}  {each.severity:<7}  {title(each)}{needs}")
        yield ""
    yield from wrap(f"{count(len(known), 'rule')}; recommend review --explain {known[0].id} prints one's page.")


def title(rule: Rule) -> str:
    """The first line of the page."""
    return engine.page(rule).partition("\n")[0].rstrip(".") or rule.name


def page(rule: Rule) -> Iterator[str]:
    """The rule's page with its facts below the title."""
    head, _, body = engine.page(rule).partition("\n")
    yield f"{rule.id} {rule.name} ({rule.severity})"
    yield head.rstrip()
    if rule.needs:
        yield from wrap(f"Stays silent unless these are known: {', '.join(rule.needs)}.")
    yield from body.rstrip().split("\n")
    if rule.sources:
        yield ""
        yield "SOURCES"
        for each in sources_of(rule):
            yield from wrap(each, "  ", "    ")
    yield ""
    yield from wrap(f"To keep a finding quiet: # recommend: ignore {rule.id} because the reason")
