"""Print the list of rules, and one rule's page."""

from collections.abc import Iterable, Iterator

from recommender.common.terminal import cut, wrap
from recommender.common.text import count
from recommender.review import engine
from recommender.review.output.text import sources_of
from recommender.review.rule import RETIRED, Rule

FAMILIES = {
    "starts": "STARTS AT ALL",
    "answers": "ANSWERS THE WORKLOAD",
    "nothing": "DOES NOTHING",
    "costs": "COSTS MEMORY OR SPEED",
    "safety": "SAFETY",
    "operations": "OPERATIONS",
}


def table(rules: Iterable[Rule]) -> Iterator[str]:
    """Yield a line per rule, by family: id, severity, title, needed options."""
    known = list(rules)
    for family, heading in FAMILIES.items():
        chosen = [rule for rule in known if rule.family == family]
        if not chosen:
            continue
        yield heading
        for rule in chosen:
            needs = f" (needs {', '.join(f'--{need}' for need in rule.needs)})" if rule.needs else ""
            yield cut(f"  {rule.id}  {rule.severity:<7}  {title(rule)}{needs}")
        yield ""
    yield from wrap(retired_line())
    yield from wrap(f"{count(len(known), 'rule')}; recommend review --explain {known[0].id} prints a rule's page.")


def retired_line() -> str:
    """Name the retired ids and the rules of ShellCheck that replace them."""
    return f"Retired: {', '.join(RETIRED)}. ShellCheck's {' and '.join(sorted({*RETIRED.values()}))} replace them."


def title(rule: Rule) -> str:
    """Return the first line of the rule's page."""
    return engine.page(rule).partition("\n")[0].rstrip(".") or rule.name


def page(rule: Rule) -> Iterator[str]:
    """Yield the rule's page, with its id, needs and sources."""
    head, _, body = engine.page(rule).partition("\n")
    yield f"{rule.id} {rule.name} ({rule.severity})"
    yield head.rstrip()
    if rule.needs:
        yield from wrap(f"Skipped unless these are known: {', '.join(rule.needs)}.")
    for block in body.strip().split("\n\n"):
        yield ""
        heading, _, text = block.removeprefix("## ").partition("\n") if block.startswith("## ") else ("", "", block)
        yield from [heading.upper()] if heading else []
        yield from text.split("\n") if text.startswith("    ") else wrap(" ".join(text.split()))
    if rule.sources:
        yield ""
        yield "SOURCES"
        for source in sources_of(rule):
            yield from wrap(source, "  ", "    ")
    yield ""
    yield from wrap(f"To ignore a finding: # recommend: ignore {rule.id} because the reason")
