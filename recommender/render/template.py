"""Fill the templates of templates/ from a recommendation. Nothing is decided here: values are only quoted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from recommender.choose.needs import is_file
from recommender.choose.reasons import Explanation
from recommender.common.terminal import cut
from recommender.common.text import WIDTH, printable
from recommender.common.units import GIB, MIB
from recommender.knowledge import option_values
from recommender.knowledge.conditions import version
from recommender.knowledge.engines import LABELS
from recommender.knowledge.load import data_root
from recommender.render import container_image
from recommender.render.quoting import comment, python, shell, shell_default, variable
from recommender.render.summary import asks_revision, cite, gib, missing, summary

if TYPE_CHECKING:
    from jinja2 import Environment

    from recommender.choose.recommend import Recommendation
    from recommender.knowledge import records

TEMPLATES = {
    "bash": "serve.sh.j2",
    "python": "pipeline.py.j2",
    "client": "client.py.j2",
    "env": "env.j2",
    "docker": "docker.j2",
}
COMMENTS = ("short", "full", "none")
"""How much the launch script says of itself; the first is the default."""
COMMENT = re.compile(r"^[^\S\n]*# (?!shellcheck|Made by|Added: |Left out: |request: ).*\n", re.MULTILINE)
TEMPLATE_CONFIG = "ChatTemplateConfig"


def request_json(recommendation: Recommendation, comments: str = COMMENTS[0]) -> str:
    """Return the request as one line of JSON, from which the artefact can be made again."""
    request = recommendation.request
    values = {field.name: (getattr(request, field.name), field.default) for field in fields(request) if field.compare}
    changed = {name: value for name, (value, default) in values.items() if value != default}
    if recommendation.adviser:
        changed["follow"] = recommendation.adviser
    if recommendation.added:
        changed["with"] = dict(recommendation.added)
    if recommendation.left_out:
        changed["without"] = list(recommendation.left_out)
    if comments != COMMENTS[0]:
        changed["comments"] = comments
    return json.dumps(changed, ensure_ascii=True, sort_keys=True)


@cache
def environment(bare: bool = False) -> Environment:
    """Return the strict template environment; quoting is by named filters only.

    ``bare``: without the templates' own comments, but for the head that ``check`` reads.
    """
    from jinja2 import Environment, FileSystemLoader, FunctionLoader, StrictUndefined

    folder = FileSystemLoader(data_root() / "templates")

    def without_comments(name: str) -> str:
        return COMMENT.sub("", folder.get_source(templates, name)[0])

    templates = Environment(
        loader=FunctionLoader(without_comments) if bare else folder,
        undefined=StrictUndefined,
        autoescape=False,
        comment_start_string="<#",  # bash writes ${#array[@]}
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "sh": shell,
        "sh_default": shell_default,
        "py": python,
        "comment": comment,
        "printable": printable,
        "variable": variable,
        "brief": _brief,
        "cite": cite,
        "gib": gib,
        "is_file": is_file,
        "bare": container_image.bare,
        "json": lambda value: json.dumps(value, ensure_ascii=True),
    }
    return templates


def context(recommendation: Recommendation, comments: str = COMMENTS[0]) -> dict[str, Any]:
    """Return the names that templates see: the recommendation's parts, and lists in order."""
    resolved, config = recommendation.resolved, recommendation.config
    emitted = [option for option in recommendation.explanations if option.emitted]
    oldest, end = python_bounds(resolved.release.python)
    engine_config = LABELS[config.backend].config_class
    return {
        "rec": recommendation,
        "resolved": resolved,
        "config": config,
        "memory": recommendation.memory,
        "speed": recommendation.speed,
        "request_json": request_json(recommendation, comments),
        "summary": summary(recommendation),
        "comments": comments,
        "missing": missing(recommendation),
        "flags": [option for option in emitted if option.kind == "flag"],
        "environment": [option for option in emitted if option.kind == "environment"],
        "client": [option for option in emitted if option.kind == "client"],
        "engine_config": engine_config,
        "fields": config_fields(recommendation, emitted, engine_config),
        "template": config_fields(recommendation, emitted, TEMPLATE_CONFIG),
        "asks_revision": asks_revision(recommendation),
        "python_minimum": oldest,
        "python_end": end,
        # Read in lmdeploy/cli/serve.py and lmdeploy/serve/openai/api_server.py of the releases on both sides.
        "proxy_forgets": resolved.version >= version("0.7.1"),
        "proxy_keys": resolved.version >= version("0.12.2"),
        "image": container_image.image(resolved.release, resolved.store),
        "serves_images": container_image.SERVES_IMAGES,
        "need_mib": -(-recommendation.memory.high // MIB),
        "download_gib": -(-model_bytes(recommendation) // GIB) + 1,
        "base_url": config.proxy_url or f"http://127.0.0.1:{config.port}",
        "timeout_s": client_timeout_s(recommendation),
        "setting": {option.setting: option.id for option in resolved.store.options() if option.setting},
    }


def _brief(option: Explanation) -> str:
    """Return an option's reason in a few words, as a sentence."""
    text = printable(option.brief or option.name)
    return cut(text[:1].upper() + text[1:], WIDTH - 4)


def client_timeout_s(recommendation: Recommendation) -> float:
    """Return the seconds that the client of ``--format client`` waits for an answer."""
    return max(30.0, round(recommendation.speed.p99_ms.high * 5 / 1000))


def model_bytes(recommendation: Recommendation) -> int:
    """Return the bytes of the checkpoint, from its headers or computed from its shape."""
    from recommender.estimate.model_shape import weight_bytes

    return recommendation.resolved.weight_bytes or weight_bytes(recommendation.resolved.model)


def python_bounds(specifier: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first Python of a range such as ``>=3.10,<3.15`` and the first after it."""
    from packaging.specifiers import SpecifierSet

    bounds = {part.operator: version(part.version) for part in SpecifierSet(specifier)}
    low, end = bounds.get(">=", version("3.8")), bounds.get("<", version("4.0"))
    return (low.major, low.minor), (end.major, end.minor)


def config_fields(
    recommendation: Recommendation, emitted: Iterable[Explanation], config: str
) -> list[tuple[str, str, Explanation]]:
    """Return (field, Python literal, explanation) of the options that a configuration class carries."""
    from recommender.knowledge.eras import within

    resolved, flags = recommendation.resolved, recommendation.resolved.store.flags
    return [
        (field.field, _literal(flags[option.option], resolved.options[option.option].type, option.value), option)
        for option in emitted
        for field in (flags[option.option].fields if option.option in flags else ())
        if field.config == config and within(field.since, field.until, resolved.version)
    ]


def _literal(flag: records.Flag, kind: str, text: str) -> str:
    """Return a value as a Python literal of its type; of several texts for one value, that of the first."""
    if kind == "bool":
        return str(text == "true")
    plain = option_values.plain(text)
    value = next((encoding.value for encoding in flag.encodings if encoding.text == plain), "")
    text = next((encoding.text for encoding in flag.encodings if encoding.value == value), text)
    return python(option_values.TYPES[kind][0](text) if kind in option_values.TYPES else text)
