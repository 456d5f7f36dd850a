"""The client makes large images smaller before it sends them, and the server cuts the same tiles out of them.

What the server does is in cases/internvl-tiles.csv: the answers of LMDeploy's own functions.
"""

from __future__ import annotations

import ast
import base64
import importlib.util
import io
import json
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from artefacts import found, run_program, text
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recommender.knowledge.load import load
from recommender.render.formats import render
from recommender.request.image_tokens import tiles

TILE = 448
CASES = [
    tuple(map(int, line.split(",")))
    for line in (Path(__file__).parent / "cases/internvl-tiles.csv").read_text("utf-8").splitlines()
    if line[0].isdigit()
]
VISION = load().models["internvl3-8b-awq"].vision[0]
Made = Callable[..., Path]
"""Saves an image as a file of this name."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RESIZE", raising=False)
        yield module(text("client"), tmp_path_factory.mktemp("client"))


def module(body: str, folder: Path) -> ModuleType:
    path = folder / "client.py"
    path.write_text(body, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("client", path)
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@cache
def photo(width: int, height: int) -> Image.Image:
    chance = random.Random(width * height)
    sizes = (width // 100 + 2, height // 100 + 2), (width // 3, height // 3)
    shapes, grain = (Image.frombytes("RGB", size, chance.randbytes(3 * size[0] * size[1])) for size in sizes)
    return Image.blend(shapes.resize((width, height)), grain.resize((width, height)), 0.15)


def encoded(image: Image.Image, form: str, **how: Any) -> bytes:
    made = io.BytesIO()
    image.save(made, form, **how)
    return made.getvalue()


def sent(client: ModuleType, data: bytes, folder: Path, name: str = "photo.jpg") -> tuple[str, bytes]:
    """Media type and bytes of the image that the client sends for a file of these bytes."""
    (folder / name).write_bytes(data)
    head, _, payload = client.picture(str(folder / name))["image_url"]["url"].partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(payload)


def seen(data: bytes) -> Image.Image:
    """An image as LMDeploy has it before it is cut: 0.18.0 lmdeploy/vl/media/image.py, load_bytes."""
    return Image.open(io.BytesIO(data)).convert("RGB")


def away(one: Image.Image, other: Image.Image) -> float:
    """By how many of 255 levels two images differ in the mean."""
    return float(np.abs(np.asarray(one, np.int16) - np.asarray(other, np.int16)).mean())


# --- the tiles


def test_the_client_counts_tiles_as_the_server_does(client: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the whole table the client's grid is LMDeploy's, and its count that of the recommender."""
    assert len(CASES) >= 500
    for width, height, most, columns, rows, *_ in CASES:
        monkeypatch.setattr(client, "MOST_TILES", most)
        assert client.grid(width, height) == (columns, rows), (width, height, most)
        count = columns * rows
        assert tiles(VISION, width, height, most) == count + (count > 1), (width, height, most)


def test_a_resized_image_is_cut_into_the_same_tiles() -> None:
    """LMDeploy cuts whole tiles as it cut the image, in each case of the table in which the client resizes."""
    resized, others = [], []
    for width, height, _, columns, rows, *again in CASES:
        larger = width >= TILE * columns and height >= TILE * rows
        (resized if larger else others).append([columns, rows] == again)
    assert len(resized) > 200
    assert all(resized)
    assert not all(others), "where an image would be enlarged it is not so: that is one reason to leave it"


@given(width=st.integers(1, 20_000), height=st.integers(1, 20_000), most=st.integers(1, 40))
def test_any_image_is_cut_into_the_same_tiles(client: ModuleType, width: int, height: int, most: int) -> None:
    """Whatever the size: the grid has the recommender's count, and whole tiles of it are cut the same way again."""
    client.MOST_TILES, before = most, client.MOST_TILES
    try:
        columns, rows = client.grid(width, height)
        count = columns * rows
        assert tiles(VISION, width, height, most) == count + (count > 1)
        if width >= TILE * columns and height >= TILE * rows:
            assert client.grid(TILE * columns, TILE * rows) == (columns, rows)
    finally:
        client.MOST_TILES = before


def test_fewer_tiles_are_chosen_among_those_asked_for(tmp_path: Path) -> None:
    """Where the plan allows six tiles an image, it is resized to at most six, and the request says so too."""
    made = found()
    limited = module(render(replace(made, config=replace(made.config, max_tiles=6)), "client"), tmp_path)
    assert (tmp_path / "client.py").read_text("utf-8").count('image["max_dynamic_patch"] = 6') == 1
    _, data = sent(limited, encoded(photo(1600, 1200), "JPEG", quality=95, subsampling=0), tmp_path)
    assert seen(data).size == (3 * TILE, 2 * TILE)  # without the limit 4 by 3, which are twelve
    _, data = sent(limited, encoded(photo(2000, 1000), "JPEG", quality=95, subsampling=0), tmp_path)
    assert seen(data).size == (2 * TILE, TILE)


# --- what is sent


def test_a_large_jpeg_is_sent_smaller(client: ModuleType, tmp_path: Path) -> None:
    """12 megapixels go as the 12 tiles that the model sees: fewer bytes, nearly the same pixels."""
    data = encoded(photo(4000, 3000), "JPEG", quality=92)
    kind, smaller = sent(client, data, tmp_path)
    assert kind == "image/jpeg"
    assert len(smaller) < 0.7 * len(data)
    before, after = seen(data), seen(smaller)
    assert after.size == (4 * TILE, 3 * TILE)
    assert client.grid(*after.size) == client.grid(*before.size) == (4, 3)
    assert away(before.resize(after.size), after) < 4
    assert away(before.resize((TILE, TILE)), after.resize((TILE, TILE))) < 1, "the small copy of the whole"


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpegs_of_other_colours_look_the_same(client: ModuleType, tmp_path: Path, mode: str) -> None:
    """Grey and print colours go as the RGB that the server turns them into."""
    data = encoded(photo(2000, 1100).convert(mode), "JPEG", quality=100) + b"\0" * 2_000_000
    _, smaller = sent(client, data, tmp_path)
    assert seen(smaller).size == (4 * TILE, 2 * TILE)
    assert away(seen(data).resize((4 * TILE, 2 * TILE)), seen(smaller)) < 4


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_a_png_stays_one_with_the_servers_own_pixels(client: ModuleType, tmp_path: Path, mode: str) -> None:
    """Of a PNG of any kind the model sees the very pixels that the server would have made of the original."""
    image = photo(2000, 1100)
    if "A" in mode:
        image = image.copy()
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    data = encoded(image.convert(mode), "PNG", compress_level=0 if mode in ("1", "L", "P") else 1)
    if mode in (
        "1",
        "L",
        "P",
    ):  # a colour is more bytes than these have: with enough of them around it the file is larger
        data += b"\0" * 8_000_000
    kind, smaller = sent(client, data, tmp_path, "photo.png")
    assert (kind, Image.open(io.BytesIO(smaller)).format) == ("image/png", "PNG")
    assert len(smaller) < len(data)
    assert seen(smaller).size == (4 * TILE, 2 * TILE)
    assert np.array_equal(seen(data).resize((4 * TILE, 2 * TILE)), seen(smaller))


def test_orientation_is_left_alone_as_the_server_leaves_it(client: ModuleType, tmp_path: Path) -> None:
    """LMDeploy reads no EXIF: neither a turned image nor a mark to turn it is sent."""
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "a maker whose name nobody needs to know"
    data = encoded(photo(2000, 1000), "JPEG", exif=exif, quality=100, comment=b"here", icc_profile=b"p" * 500)
    assert Image.open(io.BytesIO(data)).getexif()[0x0112] == 6
    _, smaller = sent(client, data, tmp_path)
    image = Image.open(io.BytesIO(smaller))
    assert image.size == (4 * TILE, 2 * TILE)
    assert not image.getexif()
    assert b"here" not in smaller
    assert b"maker" not in smaller
    assert "icc_profile" not in image.info


def test_the_first_picture_of_a_phones_file_is_sent(client: ModuleType, tmp_path: Path) -> None:
    """MPO, which phones write as .jpg, goes as the JPEG that is shown."""
    first, second = photo(2000, 1000), photo(1000, 500)
    data = encoded(first, "MPO", save_all=True, append_images=[second], quality=95)
    assert Image.open(io.BytesIO(data)).format == "MPO"
    kind, smaller = sent(client, data, tmp_path)
    assert (kind, Image.open(io.BytesIO(smaller)).format) == ("image/jpeg", "JPEG")
    assert away(first.resize((4 * TILE, 2 * TILE)), seen(smaller)) < 5


# --- what is sent as it is

LEFT: dict[str, Callable[[], bytes]] = {
    "of-its-tiles-size": lambda: encoded(photo(4 * TILE, 3 * TILE), "JPEG", quality=100),
    "smaller-than-its-tiles": lambda: encoded(photo(1280, 720), "JPEG", quality=100),
    "wide-but-lower-than-a-tile": lambda: encoded(photo(6000, 300), "JPEG", quality=100),
    "small": lambda: encoded(photo(300, 200), "PNG"),
    "better-compressed": lambda: encoded(photo(2000, 1000), "JPEG", quality=10),
    "cut-short": lambda: encoded(photo(2000, 1000), "JPEG", quality=100)[:-50_000],
    "cut-short-png": lambda: encoded(photo(2000, 1000), "PNG")[:-50_000],
    "no-image": lambda: b"GIF, said the file, but it was not" * 100_000,
    "empty": lambda: b"",
    "gif": lambda: encoded(photo(2000, 1000), "GIF"),
    "moving": lambda: encoded(photo(2000, 1000), "PNG", save_all=True, append_images=[photo(2000, 1001)]),
    "another-format": lambda: encoded(photo(2000, 1000), "BMP"),
    "16-bit": lambda: encoded(Image.frombytes("I;16", (2000, 1000), bytes(4_000_000)), "PNG", compress_level=0),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_gains_nothing_is_sent_as_it_is(
    client: ModuleType, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Images that have no more pixels than are seen, that would not shrink, or that cannot be read go unchanged."""
    data = LEFT[name]()
    assert sent(client, data, tmp_path, "photo.jpeg") == ("image/jpeg", data)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("limit", [1_500_000, 500_000], ids=["warning", "error"])
def test_what_pillow_finds_too_large_is_sent_as_it_is(
    client: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Beyond Pillow's limit, where it warns and where it refuses, the file goes unchanged and nothing is said."""
    data = encoded(photo(2000, 1000), "JPEG", quality=100)
    assert len(sent(client, data, tmp_path)[1]) < len(data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sent(client, data, tmp_path) == ("image/jpeg", data)


@pytest.mark.parametrize(
    ("words", "variables", "smaller"),
    [
        ([], {}, True),
        ([], {"RESIZE": "1"}, True),
        ([], {"RESIZE": "0"}, False),
        (["-S"], {}, False),
    ],
    ids=["pillow", "wanted", "turned-off", "no-pillow"],
)
def test_resizing_can_be_turned_off_and_needs_pillow(
    tmp_path: Path, words: list[str], variables: dict[str, str], smaller: bool
) -> None:
    """RESIZE=0 and a Python without Pillow send the file; the curl form shows what would be sent."""
    data = encoded(photo(2000, 1000), "JPEG", quality=100)
    (tmp_path / "photo.jpg").write_bytes(data)
    (tmp_path / "client.py").write_text(text("client"), encoding="utf-8")
    done = run_program(
        [sys.executable, "-I", *words, "client.py", "--curl", "photo.jpg"],
        env={"PATH": "/usr/bin:/bin", **variables},
        cwd=tmp_path,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    body = json.loads(done.stdout.split("\n")[1])
    url = body["messages"][0]["content"][1]["image_url"]["url"]
    assert (base64.b64decode(url.partition(",")[2]) != data) == smaller


# --- for which models


@pytest.mark.parametrize(
    ("asked", "resizes"),
    [
        ({}, True),
        ({"model": "internvl2.5-8b", "lmdeploy": "0.10.2"}, True),
        ({"model": "internvl3.5-8b"}, True),
        ({"images": 0}, False),
        ({"model": "internvl3-8b-hf"}, False),
        ({"model": "qwen2.5-vl-7b-instruct"}, False),
        ({"model": "qwen2.5-7b-instruct-awq"}, False),
    ],
    ids=lambda value: value.get("model", next(iter(value), "main-job")) if isinstance(value, dict) else None,
)
def test_only_models_whose_tiles_are_on_record_have_images_resized(asked: dict[str, Any], resizes: bool) -> None:
    """The -hf layout and Qwen's cut images by other rules, and text has none: their clients know of no resizing."""
    written = text("client", **asked)
    assert [word in written for word in ("PIL", "RESIZE", "def grid")] == [resizes] * 3
    nodes = list(ast.walk(ast.parse(written, feature_version=(3, 9))))
    imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= sys.stdlib_module_names
    others = {node.module: node for node in nodes if isinstance(node, ast.ImportFrom)}
    assert set(others) == ({"PIL"} if resizes else set())
    tried = [each for node in nodes if isinstance(node, ast.Try) for each in node.body]
    assert all(node in tried for node in others.values())


def test_every_model_that_is_cut_so_has_one_tile_at_least() -> None:
    """The client's grid begins at one tile, as that of every record of this architecture does."""
    cut = [each for each in load().models.values() if each.architecture == "InternVLChatModel"]
    assert len(cut) > 20
    assert {(each.vision[0].min_tiles, each.vision[0].image) for each in cut} == {(1, TILE)}
