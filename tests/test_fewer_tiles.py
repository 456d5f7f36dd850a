"""A plan with fewer tiles per image holds only if clients ask for them: every form says so."""

from __future__ import annotations

import contextlib
import re
import sys
import types
from typing import Any

import pytest

from recommender import Request, recommend, render
from recommender.render.screen import screen

SMALL = recommend(Request(gpu="rtx-3060-12g", workload="caption", concurrency=64))
LARGE = recommend(Request(gpu="h100-sxm-80g", workload="caption", concurrency=4))
FULL = 13 * 256
"""Image tokens of 640x480, which InternVL3 cuts into 4 x 3 tiles and a thumbnail of 256 tokens."""
SAYS = re.compile(r"Clients must send max_dynamic_patch (\d+) with each image; without it a prompt has ([\d,]+) tokens")


def plain(text: str) -> str:
    """A text without its line breaks and comment signs."""
    return " ".join(re.sub(r"^\s*#", "", line).strip() for line in text.splitlines())


@pytest.mark.parametrize("form", ["bash", "command", "python", "docker", "env", "screen"])
def test_each_form_says_what_clients_must_send(form: str) -> None:
    """With the tokens that a prompt has without it: the image's own, and at most 100 of text."""
    small, large = (screen(made, (), (), "") if form == "screen" else render(made, form) for made in (SMALL, LARGE))
    found = SAYS.search(plain(small))
    assert found
    assert int(found[1]) == SMALL.config.max_tiles == 1
    assert FULL < int(found[2].replace(",", "")) < FULL + 200
    assert f"more than session_len {SMALL.config.session_len:,}." in plain(small)
    assert "max_dynamic_patch" not in large


def test_a_pipeline_asks_for_them_itself() -> None:
    """Each image goes with the limit, as a message that LMDeploy reads (0.7.0 serve/vl_async_engine.py:167)."""
    program = render(SMALL, "python").replace('if __name__ == "__main__":', "if False:")
    asked: list[Any] = []
    stub, images = types.ModuleType("lmdeploy"), types.ModuleType("lmdeploy.vl")
    stub.pipeline = lambda *_, **__: contextlib.nullcontext(lambda prompts, **_: asked.extend(prompts) or [])  # type: ignore[attr-defined]
    stub.GenerationConfig = stub.TurbomindEngineConfig = lambda **_: types.SimpleNamespace()  # type: ignore[attr-defined]
    images.load_image = lambda path: f"picture of {path}"  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "lmdeploy", stub)
        patch.setitem(sys.modules, "lmdeploy.vl", images)
        space: dict[str, Any] = {"__name__": "pipeline"}
        exec(compile(program, "pipeline.py", "exec"), space)  # noqa: S102
        space["main"](["a.png", "b.png"])
    parts = [part for (message,) in asked for part in message["content"]]
    assert [part["text"] for part in parts if part["type"] == "text"] == [SMALL.resolved.prompt] * 2
    assert [part["image_data"] for part in parts if part["type"] == "image_data"] == [
        {"data": f"picture of {name}", "max_dynamic_patch": 1} for name in ("a.png", "b.png")
    ]
