"""A recommendation to text through templates/. No decisions here: values come in, quoted text goes out."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from recommender import container, rendered
from recommender.conditions import version
from recommender.explain import Explanation, opened
from recommender.facts import GIB, MIB
from recommender.memory import likely
from recommender.store import data_root

if TYPE_CHECKING:
    from jinja2 import Environment

    from recommender import records as r
    from recommender.pipeline import Recommendation

WIDTH = 80
TEMPLATES = {
    "bash": "serve.sh.j2",
    "python": "pipeline.py.j2",
    "client": "client.py.j2",
    "env": "env.j2",
    "docker": "docker.j2",
}
ENGINE_CONFIG = "TurbomindEngineConfig"


def shell(value: object) -> str:
    """A value as one word of bash, whatever it holds."""
    return shlex.quote(str(value))


def shell_default(value: object) -> str:
    """A value as the default inside an unquoted ``${NAME:-...}`` of an assignment."""
    text = str(value)
    # A closing brace or a history mark is safe only inside the quotes that shlex leaves off for plain words.
    return shlex.quote(text) if text else "''"


def python(value: object) -> str:
    """A value as a Python literal. Surrogates and control characters are escaped."""
    return ascii(value) if isinstance(value, str) else repr(value)


def printable(text: str) -> str:
    """Text without line ends or control characters, for one line of a comment or a report."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def comment(text: str, width: int = WIDTH - 2, indent: str = "") -> str:
    """Text as comment lines of bash and Python; what it holds cannot end the comment."""
    lines = textwrap.wrap(printable(text), width=width - len(indent), break_long_words=True, break_on_hyphens=False)
    return "\n".join(f"{indent}# {line}" for line in lines)


def variable(option: str) -> str:
    """The environment variable of a script that overrides an option."""
    return option.upper().replace("-", "_").replace(".", "_")


def cite(sources: r.Sources, most: int = 2) -> str:
    """Short references to what a reason rests on; ``unverified`` where nobody opened anything."""
    if not opened(sources):
        return "unverified"
    code = [f"{each.release} {each.path}:{each.line}" for each in sources.code[-most:]]
    pages = [each.url for each in sources.pages[: max(most - len(code), 0)]]
    return "; ".join([*code, *pages, *(f"evidence {each}" for each in sources.evidence[:1])])


def count(number: int, thing: str) -> str:
    """A number of things, in the singular or the plural."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def gib(size: float) -> str:
    """Bytes in GiB with one or two digits after the point."""
    return f"{size / GIB:.2f}" if size < 10 * GIB else f"{size / GIB:.1f}"


def request_json(found: Recommendation) -> str:
    """The request as one line of JSON: what remakes the artefact."""
    request = found.request
    plain = {each.name: getattr(request, each.name) for each in fields(request)}
    defaults = {each.name: each.default for each in fields(request)}
    changed = {name: value for name, value in plain.items() if value != defaults[name]}
    if found.adviser:
        changed["follow"] = found.adviser
    if found.added:
        changed["with"] = dict(found.added)
    if found.left_out:
        changed["without"] = list(found.left_out)
    return json.dumps(changed, ensure_ascii=True, sort_keys=True)


@cache
def environment() -> Environment:
    """The template environment: strict, no auto-escaping, quoting by named filters only."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(data_root() / "templates"),
        undefined=StrictUndefined,
        autoescape=False,
        comment_start_string="<#",  # bash writes ${#array[@]}
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "sh": shell,
        "sh_default": shell_default,
        "py": python,
        "comment": comment,
        "printable": printable,
        "variable": variable,
        "cite": cite,
        "gib": gib,
        "bare": container.bare,
        "json": lambda value: json.dumps(value, ensure_ascii=True),
    }
    return made


def render(found: Recommendation, form: str) -> str:
    """An artefact: ``bash``, ``python``, ``client``, ``env``, ``docker``, ``json`` or ``report``.

    Raises RequestError for what an environment file or one container cannot hold.
    """
    if form == "json":
        from recommender.publish import to_json

        return to_json(found)
    if form == "report":
        from recommender.report import report

        return report(found)
    if form == "docker":
        container.one_server(found)
    return rendered.sealed(environment().get_template(TEMPLATES[form]).render(context(found)), form)


def context(found: Recommendation) -> dict[str, Any]:
    """What the templates see: names of the recommendation, and lists already in order."""
    facts = found.facts
    emitted = [each for each in found.explanations if each.emitted]
    return {
        "rec": found,
        "facts": facts,
        "config": found.config,
        "memory": found.memory,
        "speed": found.speed,
        "request_json": request_json(found),
        "summary": summary(found),
        "flags": [each for each in emitted if each.kind == "flag"],
        "environment": [each for each in emitted if each.kind == "environment"],
        "client": [each for each in emitted if each.kind == "client"],
        "fields": engine_fields(found, emitted),
        "left": [each for each in found.explanations if each.kind == "flag" and not each.emitted],
        "asks_revision": facts.model.remote_code and not facts.weight_bytes and not found.adviser,
        "python_minimum": python_bounds(facts.release.python)[0],
        "python_end": python_bounds(facts.release.python)[1],
        # Read in lmdeploy/cli/serve.py and lmdeploy/serve/openai/api_server.py of the releases on both sides.
        "proxy_forgets": facts.version >= version("0.7.1"),
        "proxy_keys": facts.version >= version("0.12.2"),
        "image": container.image(facts.release, facts.store),
        "serves_images": container.SERVES_IMAGES,
        "need_mib": -(-found.memory.high // MIB),
        "download_gib": -(-model_bytes(found) // GIB) + 1,
        "base_url": found.config.proxy_url or f"http://127.0.0.1:{found.config.port}",
        "timeout_s": max(30.0, round(found.speed.p99_ms.high * 5 / 1000)),
        "setting": {option.setting: option.id for option in facts.store.options() if option.setting},
    }


def model_bytes(found: Recommendation) -> int:
    """Bytes of the checkpoint, as its headers say or its shape computes."""
    from recommender.shapes import weight_bytes

    return found.facts.weight_bytes or weight_bytes(found.facts.model)


def python_bounds(specifier: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """The lowest Python of a range such as ``>=3.10,<3.15`` and the first one beyond it, as (major, minor)."""
    from packaging.specifiers import SpecifierSet

    each = {part.operator: version(part.version) for part in SpecifierSet(specifier)}
    low, end = each.get(">=", version("3.8")), each.get("<", version("4.0"))
    return (low.major, low.minor), (end.major, end.minor)


def summary(found: Recommendation) -> list[str]:
    """Lines that say what this is for and what to expect: plain sentences."""
    facts, speed = found.facts, found.speed
    cards = found.config.cards
    images = f"{count(facts.images, 'image')} of {facts.image_width}x{facts.image_height}, " if facts.images else ""
    asked = facts.input_tokens(found.config.max_tiles)
    low, high = likely(facts, found.memory, found.config.tp)
    return [
        f"{facts.model.hub} on {cards} x {facts.gpu.name}, LMDeploy {facts.release.id}, TurboMind.",
        f"{count(facts.concurrency, 'request')} in flight: {images}{asked} tokens in, {facts.output_tokens} out.",
        f"Predicted: {gib(found.memory.total)} GiB a card ({gib(low)} to {gib(high)}), "
        f"{speed.latency_ms.value:,.0f} ms a request ({speed.latency_ms.low:,.0f} to {speed.latency_ms.high:,.0f}), "
        f"{speed.rps.value:,.1f} requests/s ({speed.rps.low:,.1f} to {speed.rps.high:,.1f}); {speed.basis}.",
    ]


def engine_fields(found: Recommendation, emitted: Iterable[Explanation]) -> list[tuple[str, str, Explanation]]:
    """(field, Python literal, explanation) of what fills the engine's configuration in Python."""
    from recommender.facts import within

    flags = found.facts.store.flags
    made = []
    for each in emitted:
        flag = flags.get(each.option)
        for field in flag.fields if flag else ():
            if field.config == ENGINE_CONFIG and within(field.since, field.until, found.facts.version):
                made.append((field.field, _literal(each, found.facts.options[each.option].type), each))
    return made


def _literal(each: Explanation, kind: str) -> str:
    if kind == "bool":
        return "True" if each.value == "true" else "False"
    if kind in ("int", "float"):
        return python(int(each.value) if kind == "int" else float(each.value))
    return python(int(each.value) if each.value.isdecimal() else each.value)
