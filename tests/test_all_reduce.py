"""What the cards of a server add up among them, by the bytes a ring sends."""

from dataclasses import replace
from typing import Any

import pytest
from variants import IMAGES, TEXT, resolve, variant

from recommender.estimate.terms import all_reduce

TIMES = {"reduction-ms": 0.01, "link-efficiency": 0.5, "pcie-link-gb-s": 10.0}
NVLINK = 900 / 2 * 0.5
"""GB/s of an H100's links one way, half of which is reached."""


@pytest.mark.parametrize(("tp", "share"), [(2, 1.0), (4, 1.5), (8, 1.75)])
@pytest.mark.parametrize(("gpu", "link"), [("h100-sxm-80g", NVLINK), ("l4", 10.0)])
def test_a_pass_of_a_ring(gpu: str, link: float, tp: int, share: float) -> None:
    """28 layers, two a layer: a time for each step of the ring, and 2 (n - 1) / n of 100 rows of 3584 numbers."""
    resolved = resolve(gpu=gpu, gpu_count=8, model=TEXT)
    sent = share * 100 * 3584 * 2
    expected = 28 * 2 * (0.01 * (tp - 1) + sent / link / 1e6)
    assert all_reduce.estimate_pass_ms(resolved, tp, 100, TIMES) == pytest.approx(expected, rel=1e-12)


def test_one_card_adds_nothing_up() -> None:
    """Neither for text nor for images."""
    resolved = resolve(model=IMAGES)
    assert (
        all_reduce.estimate_pass_ms(resolved, 1, 100, TIMES) == all_reduce.estimate_image_ms(resolved, 1, 9, TIMES) == 0
    )


@pytest.mark.parametrize("tiles", [1, 9])
def test_an_image_is_added_up_in_every_layer_of_its_encoder(tiles: int) -> None:
    """InternViT: 24 layers of 1024, 32 x 32 patches a tile."""
    resolved = resolve(gpu_count=2, model=IMAGES)
    expected = 24 * 2 * (0.01 + tiles * 1024 * 1024 * 2 / NVLINK / 1e6)
    assert all_reduce.estimate_image_ms(resolved, 2, tiles, TIMES) == pytest.approx(expected, rel=1e-12)


def test_what_is_left_of_an_image_beside_whole_patches_is_not_seen() -> None:
    """Of 460 pixels 32 patches of 14 a side, as of 448."""
    resolved = resolve(gpu_count=2, model=IMAGES)
    odd = variant(resolved.model.vision[0], image=460)
    cut = replace(resolved, model=variant(resolved.model, vision=(odd,)))
    assert all_reduce.estimate_image_ms(cut, 2, 1, TIMES) == all_reduce.estimate_image_ms(resolved, 2, 1, TIMES)


def test_a_text_model_has_no_encoder_to_add_up() -> None:
    """Nothing to see."""
    asked: dict[str, Any] = {"gpu_count": 2, "model": TEXT}
    assert all_reduce.estimate_image_ms(resolve(**asked), 2, 1, TIMES) == 0
