"""Layouts of one host or a few that the tests of compose files and systemd units share."""

from __future__ import annotations

from dataclasses import replace

from artefacts import found
from hypothesis import strategies as st

from recommender.choose.recommend import Recommendation
from recommender.fleet.layout import Layout

GRID: dict[str, tuple[dict[str, object], int]] = {
    "one-card": ({"gpu": "l4", "load": "single"}, 1),
    "two-servers": ({"gpu": "h100-sxm", "gpu_count": 2, "load": "", "concurrency": 32}, 1),
    "old-release": ({"gpu": "a100-sxm-80g", "gpu_count": 2, "load": "high", "lmdeploy": "0.9.2"}, 1),
    "tp-2": ({"gpu": "h100-sxm", "gpu_count": 4, "model": "internvl3-38b", "load": "medium"}, 3),
    "text": ({"gpu": "l40s", "gpu_count": 4, "model": "qwen2.5-7b-instruct", "load": "high", "images": 0}, 1),
}
ADDRESS = ("--proxy-url", "--server-name", "--server-port")
"""Options that a host's files give themselves."""


def layout(name: str) -> Layout:
    """A case of the grid; ``shared`` has two servers on each card, which no request of it brings about."""
    asked, hosts = GRID["two-servers" if name == "shared" else name]
    made = found(**asked)
    if name == "shared":
        made = replace(made, config=replace(made.config, servers=4, share=2))
    return Layout(made, hosts)


def hostile(name: str) -> Layout:
    """The two servers' layout with a model of this name."""
    made = layout("two-servers").recommendation
    resolved, request = replace(made.resolved, model_source=name), replace(made.request, model=name)
    return Layout(replace(made, resolved=resolved, request=request))


def flag_words(recommendation: Recommendation) -> list[str]:
    return [
        word
        for option in recommendation.explanations
        if option.emitted and option.kind == "flag" and option.name not in ADDRESS
        for word in ([option.name] if option.switch else [option.name, option.value])
    ]


def variables(recommendation: Recommendation) -> dict[str, str]:
    return {
        option.name: option.value
        for option in recommendation.explanations
        if option.emitted and option.kind == "environment"
    }


def names(signs: str, *examples: str) -> st.SearchStrategy[str]:
    """Names that a model may have: any text, text of these signs, and the examples."""
    return st.one_of(
        st.text(min_size=1, max_size=60), st.text(alphabet=signs, min_size=1, max_size=30), st.sampled_from(examples)
    )
