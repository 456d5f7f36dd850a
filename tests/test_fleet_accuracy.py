"""``recommend plan`` gives up no accuracy for fewer hosts, and says what speaks against its servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from variants import configuration

from recommender.fleet.aim import Aim
from recommender.fleet.concessions import costs_more
from recommender.fleet.plan import plan_fleet, read_hosts
from recommender.fleet.report import lines
from recommender.fleet.sizing import FleetPlan, SizedFleet
from recommender.knowledge.load import load
from recommender.request.request import Request

STORE = load()
MANY_IMAGES: dict[str, Any] = {"images": 14, "image_width": 1280, "image_height": 720}
"""As many as the context of InternVL3-8B holds."""


def plan(*gpus: str, rps: float, **asked: Any) -> FleetPlan:
    request = Request(gpu=gpus[0], rps=rps, **asked)
    return plan_fleet(request, read_hosts(gpus, STORE), Aim(rps), STORE)


@pytest.mark.parametrize(
    ("bits", "tiles", "than_bits", "than_tiles", "more"),
    [
        (16, 0, 16, 0, False),
        (8, 0, 16, 0, False),  # published scores barely change
        (4, 0, 16, 0, True),
        (4, 0, 8, 0, True),
        (4, 0, 4, 0, False),
        (16, 6, 16, 0, True),
        (8, 1, 8, 6, True),
        (16, 6, 4, 6, False),
    ],
)
def test_what_costs_more_accuracy(bits: int, tiles: int, than_bits: int, than_tiles: int, more: bool) -> None:
    """Fewer tiles per image, or a KV cache of 4 bits; not of 8."""
    base = configuration()
    of, than = replace(base, kv_bits=bits, max_tiles=tiles), replace(base, kv_bits=than_bits, max_tiles=than_tiles)
    assert costs_more(of, than) is more


def test_a_larger_batch_cuts_no_image_and_no_cache_to_4_bits() -> None:
    """Batches of 128 of these images hold only one tile of each; on an L4 they need 4 bits, and save no host."""
    (fleet,) = plan("A100-80G", rps=0.1, model="internvl3-8b", **MANY_IMAGES).fleets
    assert (fleet.config.max_tiles, fleet.config.kv_bits) == (0, 8)
    (small,) = plan("L4", rps=4.0, image_width=1280, image_height=720, images=1).fleets
    assert small.config.kv_bits == 16


def test_the_plan_warns_as_recommend_does() -> None:
    """Of what LMDeploy does with the model on all hosts; of a smaller KV cache by the hosts that have one."""
    made = plan("A100-80G", "H200", rps=1.0, model="llava-1.5-7b-hf")
    (once,) = (note for note in made.notes if "answers every image with HTTP 400" in note)
    assert once.startswith("warning: With Transformers 5, llava-hf/llava-1.5-7b-hf ")
    made = plan("A100-80G", "H200", rps=0.1, model="internvl3-8b", **MANY_IMAGES)
    assert [note for note in made.notes if "accuracy" in note] == [
        "a100-sxm-80g:1: accuracy: 8-bit KV cache may change answers"
    ]
    assert made.notes[-1] in " ".join(" ".join(lines(made)).split())


def test_the_plan_says_that_prompts_are_cut() -> None:
    """A workload whose prompts exceed the model's context."""
    made = plan("H100-80G", rps=0.5, model="qwen3-4b", workload="agent")
    assert [note for note in made.notes if "longer prompts of agent are cut" in note]


def test_a_rare_request_is_no_rate_of_zero() -> None:
    """One server sustains a request in a minute."""
    long = {"images": 0, "prompt_tokens": 28_000, "output_tokens": 4000}
    made = plan("A100-80G", rps=0.01, model="qwen2.5-72b-instruct-awq", **long)
    (fleet,) = made.fleets
    assert isinstance(fleet, SizedFleet)
    row = next(line for line in lines(made) if line.startswith("  a100-sxm-80g:1"))
    assert 0 < fleet.holds < 0.05
    assert float(row.split()[4]) == pytest.approx(fleet.holds, abs=5e-4)
