"""List what the recommender says to a reader of the configurator or the check, for the pages that translate it.

The texts are found in the code that makes them, and in the constraints. A page holds each with its translation;
``site/assets/configure/translate.js`` puts a text together from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from recommender.knowledge import records
from recommender.review import engine
from recommender.site.i18n.extraction import templates
from recommender.site.i18n.translation import by_template, plain, single
from recommender.site.site_data import SiteData, briefs

JOINED = re.compile(r"([:,;] )")
"""Between two pieces of a sentence."""
TIME = re.compile(r"(\{[\w.]+_ms\}) ms")
"""A time in a constraint's text: it may become seconds, so its unit is a part of what is filled in."""
PACKAGE = Path(__file__).parents[1]
QUESTION = (
    "choose/advisers.py", "choose/looser_goals.py", "choose/problems.py", "choose/recommend.py", "choose/relax.py",
    "choose/select.py", "common/text.py", "knowledge/gpu_layout.py",
    "estimate/speed.py", "estimate/uncertainty.py", "fleet/aim.py", "fleet/alternatives.py", "fleet/plan.py",
    "fleet/rate_search.py", "fleet/sizing.py", "knowledge/names.py", "knowledge/option_values.py",
    "request/command_line.py", "request/detect_gpu.py", "request/lengths.py", "request/load_lengths.py",
    "request/question.py", "request/request.py", "request/resolved_request.py", "request/trace.py",
    "request/trace_formats.py", "request/trace_load.py", "request/trace_rows.py", "request/unknown_model.py",
)  # fmt: skip
"""Modules whose texts refuse a question, suggest a change, or are part of an answer."""
REVIEW = (
    "common/text.py", "knowledge/gpu_layout.py", "knowledge/option_values.py", "review/ignores.py", "review/inputs.py",
    "review/optimize.py",
    "review/readers", "review/script/mentions.py", "review/shared_repairs.py", "review/shell/grammar.py",
    "review/shell/inner_scripts.py", "review/shell/source_command.py",
)  # fmt: skip
"""Modules whose texts any rule's finding may hold."""
COMPOSED = (
    "{0} on {1} x {2}", "TurboMind", "PyTorch engine",
    "{0} concurrent requests", "1 concurrent request",
    "{0} requests/s arriving, {1} at most at once",
    "{0} images of {1}", "1 image of {0}",
    "{0} input and {1} output tokens",
    "input {0} tokens (up to {1}), output {2} (up to {3})",
    "{0} of each input are the same", "{0} requests a conversation",
    "LMDeploy {word}", "model {word}", "card {word}", "card {0} (not {1})", "the model's newest revision",
    "workload {0} ({1})", "{0} tokens of text in", "1 token of text in", "{word} out", "answers in JSON",
    "one request at a time", "{0} CPU cores", "1 CPU core",
    "--trace {0}: {1}", "no rows", "{0}: unknown GPU {1}", "--model: unknown model {0}",
    "use {0}", "use {0} x {1}", "{0} x {1}", "remove {0}", "preprocessing",
    "{0} does nothing here: in LMDeploy {1} nothing reads it",
    "only {0}", "{0} and {1} more", "{word} ({share})",
    "{word} (a share of the memory that the weights leave free)", "{word} (PyTorch engine only)",
    "code of {0}; measured on {1}", "code of {0}; later code is not public", "code of {0}; newer code was not read",
    "--format {0}: one {1} cannot start {2} servers and a proxy; use --format bash, which starts them all",
    "{0} is given {1} times ({2}): all GPUs of a server must be the same model; name one, "
    "or compare several with recommend plan",
    "--burstiness: only arrivals have gaps between them; add --rps, or leave it out",
    "--burstiness: with --concurrency, --rps is a goal and sets no arrivals; remove one",
    "--{0} steers our own choice, but --follow uses an adviser's; remove one",
    "{0} needs --follow; to change a generated script, set the variables at its top",
    "Refuted", "No-effect", "Outdated", "Measured on LMDeploy {0}: {1}; {2}; {3}.", "random weights", "{0}, {1}: x{2}.",
    "Outside the verdict: {0}.", "CPU cores", "the CPU cores", "network", "the network", "tp {word}",
)  # fmt: skip
"""Texts of an answer that are joined from parts of several functions: title, load and assumptions."""
SYSTEM = (
    "No such file or directory", "Permission denied", "Is a directory", "Not a directory", "Symbolic link loop",
    "Filename too long", "I/O error", "No space left on device", "Read-only file system", "Resource busy",
)  # fmt: skip
"""Error texts of a browser's file system (musl's) for a file that cannot be read."""
REPAIRS = (
    "write {0}", "add {0}", "known", "{0} is", "{0} (assumed)", "a {0} is missing here",
    "this is not valid shell syntax",
    "{0} is not beside the script and was not read", "{0} is not given", "pass {0}",
    "This holds only {0}.", "with {0}", "without {0}", "with {0} and without {1}", "{0} (line {1})",
    "for {0} of the {1} commands that the branches make",
)  # fmt: skip
"""Texts of findings and repairs that are joined in the same way."""
SENTENCE = re.compile(r"(?<=[.?]) (?=[A-Z0-9{])")
"""Between two sentences: texts share many, so each is translated once."""
UNTRUE = ("refuted", "no-effect", "outdated")
NEEDED_OPTIONS = "needed-options"
"""The constraint on options that a model needs, each with a reason of its own."""
Pairs = list[list[str]]


@cache
def _of_modules(names: tuple[str, ...]) -> tuple[str, ...]:
    paths = (path for name in names for path in sorted([PACKAGE / name, *(PACKAGE / name).rglob("*.py")]))
    return tuple(text for path in paths if path.is_file() for text in templates(path))


def pairs(data: SiteData, texts: Iterable[str]) -> Pairs:
    """Return each sentence of some texts with its translation."""
    return _wholes(data, (part for text in texts for part in SENTENCE.split(single(text))))


def by_sentence(data: SiteData, text: str) -> str:
    """Translate a text that the recommender says, sentence by sentence."""
    return " ".join(data.t(part) for part in SENTENCE.split(single(text)))


def _wholes(data: SiteData, texts: Iterable[str]) -> Pairs:
    """Return each text with its translation."""
    once = (text for text in dict.fromkeys(map(single, texts)) if text)
    return [[TIME.sub(r"\1", part) for part in (text, plain(data.t(text)))] for text in once]


def constraint_pairs(data: SiteData) -> dict[str, Pairs]:
    """Return what constraints say and advise, and what is said of a claim of advisers that does not hold."""
    known = data.store.constraints.values()
    claims = (each for each in data.store.claims.values() if each.advisers and each.verdict in UNTRUE)
    return {each.id: pairs(data, (each.message, each.remedy)) for each in known} | {
        each.id: _wholes(data, (each.statement, each.because)) for each in claims
    }


def option_pairs(data: SiteData) -> dict[str, Pairs]:
    """Return the reasons of each option: ours in full and in few words, those of models, and those of advisers."""
    needs = [need for model in data.store.models.values() for need in model.needs]
    advised = [setting for adviser in data.store.advisers.values() for setting in adviser.settings if setting.reason]
    found = {}
    for option in data.store.options():
        needed = [need.because for need in needs if need.option == option.id]
        ours = [*(reason.text for reason in option.reasons), *needed, *briefs(option), option.unset]
        own = pairs(data, ours) if _is_set(option) else []
        theirs = {single(setting.reason): setting.reason_vi for setting in advised if setting.option == option.id}
        found[option.id] = own + [[text, single(plain(data.own(text, known)))] for text, known in theirs.items()]
    return {name: each for name, each in found.items() if each}


def _is_set(option: records.Option) -> bool:
    return bool(option.setting) and option.emit != "never"


def reason_pairs(data: SiteData) -> Pairs:
    """Return why we set options, in full and in few words: what the check says of our values."""
    options = [option for option in data.store.options() if _is_set(option)]
    return pairs(data, (text for each in options for text in (*(why.text for why in each.reasons), *briefs(each))))


def of_answers(data: SiteData) -> dict[str, Any]:
    """Return the recommender's texts with their translations: for options, for constraints, and the rest."""
    return {"options": option_pairs(data), "constraints": constraint_pairs(data), "said": of_questions(data)}


def at_first(data: SiteData, text: str) -> str:
    """Return a text of the first answer in the pages' language, for the page before its scripts run."""
    pieces = JOINED.split(text)
    return "".join(
        piece
        if JOINED.fullmatch(piece) or data.english
        else by_template(piece, COMPOSED, lambda each: plain(data.t(each)))
        for piece in pieces
    )


def of_questions(data: SiteData) -> Pairs:
    """Return what an answer says besides reasons and constraints: title, load, assumptions, notes, refusals."""
    return pairs(data, (*COMPOSED, *SYSTEM, *_of_modules(QUESTION)))


def of_reviews(data: SiteData) -> dict[str, Pairs]:
    """Return what each rule finds, by its id, and under no id what any of them may find."""
    found = {
        rule.id: [*pairs(data, _of_rule(data, rule.id)), *_wholes(data, _of_records(data, rule.id))]
        for rule in engine.rules()
    }
    anywhere = pairs(data, (*REPAIRS, *SYSTEM, *_of_modules(REVIEW)))
    sentences = [[f"{text[:1].upper()}{text[1:]}." for text in pair] for pair in anywhere]
    return {"": anywhere, **found, engine.UNREAD: [*found[engine.UNREAD], *sentences]}


def _of_rule(data: SiteData, name: str) -> Iterator[str]:
    """Yield the texts of a rule's module and of the records that it reports."""
    for path in sorted((PACKAGE / "review" / "rules").rglob(f"{name.lower()}_*.py")):
        yield from templates(path)
    cited = [source.partition("/") for source in engine.rule(name).sources]
    constraints = [record for kind, _, record in cited if kind == "constraints"]
    for record in constraints:
        yield from (data.store.constraints[record].message, data.store.constraints[record].remedy)
    if NEEDED_OPTIONS in constraints:
        yield from (need.because for model in data.store.models.values() for need in model.needs)


def _of_records(data: SiteData, name: str) -> Iterator[str]:
    """Yield what a rule quotes of known issues and of options that nothing reads."""
    for kind, _, record in (source.partition("/") for source in engine.rule(name).sources):
        if kind == "threads":
            yield data.store.threads[record].remedy
        elif kind == "flags":
            yield from (era.note for era in data.store.flags[record].eras if era.read_by == ("nobody",))
