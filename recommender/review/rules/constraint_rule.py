"""Rules that report violated constraints of the knowledge base, declared in one call each."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from recommender.knowledge.conditions import Value
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, Fix, LaunchSetting, Rule, Severity, declare
from recommender.review.script.model import Span

LAUNCH, MODEL = "launch", "model"
NEVER: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def constraint_rule(
    module: str,
    severity: Severity,
    constraints: tuple[str, ...],
    *,
    sources: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    at: str = "",
    when: Callable[[Case], bool] | None = None,
    unless: Mapping[str, tuple[str, ...]] = NEVER,
    assume: Callable[[Case], Mapping[str, Value]] | None = None,
    first: bool = False,
    why: str = "",
    fix: Callable[[LaunchSetting], Fix | None] | None = None,
    by_architecture: bool = False,
) -> Rule:
    """Return a rule that reports these constraints where they are violated.

    ``at`` is the place: ``launch``, ``model``, an option that the launch must set, or (empty) the first setting that
    the constraint compares, which the launch must set. ``when`` must hold. ``unless``: constraints that hide another.
    ``assume``: values that the rule knows better. ``first``: report one only. ``why`` replaces the record's remedy.
    """

    def place(case: Case, setting: LaunchSetting | None) -> Span:
        if at == MODEL:
            return checks.model_place(case)
        return case.launch.place if at == LAUNCH or setting is None else checks.at(setting)

    def check(case: Case) -> Diagnostics:
        if (at not in ("", LAUNCH, MODEL) and at not in case.settings) or (when is not None and not when(case)):
            return
        for violation in checks.broken(case, *constraints, extra=assume(case) if assume else checks.NOTHING):
            setting = case.settings.get(at) or next(iter(violation.settings), None)
            if (at or setting) and not any(checks.broken(case, *unless.get(violation.record.id, ()))):
                repair = fix(setting) if fix and setting else None
                source = (f"constraints/{violation.record.id}",)
                remedy = why or violation.record.remedy
                yield Diagnostic(place(case, setting), violation.message, remedy, repair, sources=source)
                if first:
                    return

    cited = tuple(f"constraints/{constraint}" for constraint in constraints)
    return declare(
        module, severity, check=check, sources=(*cited, *sources), needs=needs, by_architecture=by_architecture
    )
