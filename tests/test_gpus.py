"""The GPU records agree with themselves, with arithmetic and with how people write their names."""

import re

import pytest

from recommender.common.errors import UnknownName
from recommender.knowledge.load import load
from recommender.knowledge.names import resolve_gpu
from recommender.knowledge.records import Gpu

STORE = load()
GPUS = STORE.gpus
NAMES = sorted(GPUS)
SLICES = [name for name in NAMES if "-mig-" in name]
WHOLE = [name for name in NAMES if name not in SLICES]
GEFORCE = [name for name in WHOLE if GPUS[name].name.startswith("NVIDIA GeForce")]

# Width of the memory bus in bits and data rate of a pin in Gbit/s.
BUS = {
    "t4": (256, 10.0), "titan-rtx": (384, 14.0), "quadro-rtx-8000": (384, 14.0), "rtx-2080-ti": (352, 14.0),
    "a2": (128, 12.5), "a16": (128, 12.5), "a10": (384, 12.5), "a40": (384, 14.5), "rtx-a4000": (256, 14.0),
    "rtx-a5000": (384, 16.0), "rtx-a6000": (384, 16.0), "rtx-3060-12g": (192, 15.0), "rtx-3080-10g": (320, 19.0),
    "rtx-3080-ti": (384, 19.0), "rtx-3090": (384, 19.5), "rtx-3090-ti": (384, 21.0), "l4": (192, 12.5),
    "l20": (384, 18.0), "l40": (384, 18.0), "l40s": (384, 18.0), "rtx-4000-ada": (160, 18.0),
    "rtx-5000-ada": (256, 18.0), "rtx-6000-ada": (384, 20.0), "rtx-4070-ti-super": (256, 21.0),
    "rtx-4080": (256, 22.4), "rtx-4080-super": (256, 23.0), "rtx-4090": (384, 21.0), "rtx-4090-d": (384, 21.0),
    "rtx-5070-ti": (256, 28.0), "rtx-5080": (256, 30.0), "rtx-5090": (512, 28.0),
    "rtx-pro-6000-workstation": (512, 28.0), "rtx-pro-6000-max-q": (512, 28.0), "rtx-pro-6000-server": (512, 28.0),
    "v100-pcie-16g": (4096, 1.75), "h100-nvl-94g": (6016, 5.24), "b200": (7680, 8.0),
}  # fmt: skip

# Names that the driver gives to two memory sizes.
SHARED = {"NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3080"}

# What people write, the record meant, and whether the name fits other products too.
WRITTEN = [
    ("V100", "v100-sxm2-32g", True), ("v100-16g", "v100-sxm2-16g", True), ("V100 SXM2", "v100-sxm2-32g", True),
    ("Tesla V100-PCIE-16GB", "v100-pcie-16g", False), ("V100-PCIE-32GB", "v100-pcie-32g", False),
    ("T4", "t4", False), ("Tesla T4", "t4", False), ("A2", "a2", False), ("A10", "a10", False),
    ("NVIDIA A10G", "a10g", False), ("a10g-24gb", "a10g", False), ("A16", "a16", False), ("A30", "a30", False),
    ("A40", "a40", False), ("A40-48G", "a40", False), ("A100", "a100-sxm-80g", True),
    ("A100-80G", "a100-sxm-80g", True), ("A100-40G", "a100-sxm-40g", True), ("A100 PCIe", "a100-pcie-80g", True),
    ("NVIDIA A100-SXM4-40GB", "a100-sxm-40g", False), ("NVIDIA A100 80GB PCIe", "a100-pcie-80g", False),
    ("A800", "a800-sxm-80g", True), ("A800 PCIe", "a800-pcie-80g", False), ("L4", "l4", False),
    ("L20", "l20", False), ("L40", "l40", False), ("L40S", "l40s", False), ("H20", "h20-96g", True),
    ("H20-141G", "h20-141g", False), ("NVIDIA H20-3e", "h20-141g", False), ("H100", "h100-sxm-80g", True),
    ("h100 sxm", "h100-sxm-80g", False), ("H100 SXM5", "h100-sxm-80g", False),
    ("H100 PCIe", "h100-pcie-80g", False), ("H100 NVL", "h100-nvl-94g", False),
    ("NVIDIA H100 80GB HBM3", "h100-sxm-80g", False), ("H800", "h800-sxm-80g", True),
    ("H800 PCIe", "h800-pcie-80g", False), ("H200", "h200-sxm", True), ("H200-141GB", "h200-sxm", True),
    ("H200 NVL", "h200-nvl", False), ("GH200", "gh200-96g", True), ("GH200-144G", "gh200-144g", False),
    ("B200", "b200", False), ("GB200", "gb200", False), ("A4000", "rtx-a4000", False),
    ("RTX A5000", "rtx-a5000", False), ("A6000", "rtx-a6000", False), ("RTX A6000", "rtx-a6000", False),
    ("RTX 4000 Ada", "rtx-4000-ada", False), ("RTX 5000 Ada Generation", "rtx-5000-ada", False),
    ("RTX 6000 Ada", "rtx-6000-ada", False), ("RTX 6000", "rtx-6000-ada", True),
    ("RTX PRO 6000", "rtx-pro-6000-workstation", True),
    ("RTX PRO 6000 Blackwell Max-Q", "rtx-pro-6000-max-q", False),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server", False),
    ("RTX 8000", "quadro-rtx-8000", False), ("Titan RTX", "titan-rtx", False), ("2080 Ti", "rtx-2080-ti", False),
    ("RTX2080Ti", "rtx-2080-ti", False), ("3060", "rtx-3060-12g", True), ("RTX 3080", "rtx-3080-10g", True),
    ("RTX 3080 Ti", "rtx-3080-ti", False), ("3090", "rtx-3090", False), ("RTX 3090 Ti", "rtx-3090-ti", False),
    ("4070 Ti Super", "rtx-4070-ti-super", False), ("4080", "rtx-4080", False),
    ("RTX 4080 Super", "rtx-4080-super", False), ("4090", "rtx-4090", False), ("RTX4090", "rtx-4090", False),
    ("4090-24G", "rtx-4090", False), ("4090D", "rtx-4090-d", False), ("5070 Ti", "rtx-5070-ti", False),
    ("RTX 5080", "rtx-5080", False), ("5090", "rtx-5090", False),
    ("NVIDIA A100-SXM4-80GB MIG 2g.20gb", "a100-sxm-80g-mig-2g", False),
    ("H100 MIG 3g.40gb", "h100-sxm-80g-mig-3g", True), ("1g.10gb", "a100-sxm-80g-mig-1g", True),
    ("1g.18gb", "h200-sxm-mig-1g", True),
]  # fmt: skip


def rates(gpu: Gpu) -> dict[str, float]:
    """Tera-operations by precision."""
    return {rate.precision: rate.tera for rate in gpu.rates}


def capability(gpu: Gpu) -> tuple[int, ...]:
    return tuple(int(part) for part in gpu.compute_capability.split("."))


def parent(name: str) -> Gpu:
    return GPUS[name.partition("-mig-")[0]]


def siblings(name: str) -> dict[str, Gpu]:
    """The slices of the same GPU by compute slices."""
    whole = name.partition("-mig-")[0]
    return {other.rpartition("-")[2]: GPUS[other] for other in SLICES if other.partition("-mig-")[0] == whole}


def test_there_are_enough() -> None:
    """The parts that a user may rent or own, and slices of those that are split."""
    assert len(WHOLE) >= 48
    assert len({name.partition("-mig-")[0] for name in SLICES}) == 4


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_what_was_sold(name: str) -> None:
    """The driver reports at most what was sold in 2^30 bytes, and not much less than that in 10^9."""
    gpu = GPUS[name]
    low = 0.88 if name in SLICES else 0.95  # a slice's name rounds its memory up
    assert low * gpu.memory_gb * 10**9 / 2**20 <= gpu.memory_mib <= gpu.memory_gb * 1024


@pytest.mark.parametrize("name", sorted(BUS))
def test_bandwidth_is_bus_times_data_rate(name: str) -> None:
    """Bits times gigabits a second, over eight; within 1.5%, as datasheets round."""
    bits, rate = BUS[name]
    slack = 0.03 if name == "b200" else 0.015  # sold at 7.7 TB/s, a little under its memory's 7.68
    assert GPUS[name].bandwidth_gb_s == pytest.approx(bits * rate / 8, rel=slack)


@pytest.mark.parametrize("name", NAMES)
def test_precisions_follow_the_architecture(name: str) -> None:
    """int8 from 7.5, bf16 from 8.0, fp8 from 8.9, fp4 from 10.0; each exactly where the chip has it."""
    gpu, have = GPUS[name], set(rates(GPUS[name]))
    since = {"fp16": (7, 0), "int8": (7, 5), "bf16": (8, 0), "fp8": (8, 9), "fp4": (10, 0)}
    assert have == {precision for precision, first in since.items() if capability(gpu) >= first}


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_in_proportion(name: str) -> None:
    """bf16 as fp16, fp8 twice that; int8 twice too, or four times on GeForce, whose fp16 is halved; fp4 twice fp8.

    GeForce of capability 12.0 has fp4 at four times fp8, which with 32-bit accumulation is halved too.
    """
    gpu, have = GPUS[name], rates(GPUS[name])
    base = have["fp16"]
    geforce = name in GEFORCE
    slack = 0.025 if name == "l40s" else 0.01  # its datasheet has 733 beside 362.05
    assert have.get("bf16", base) == base
    assert have.get("fp8", 2 * base) == pytest.approx(2 * base, rel=slack)
    assert have.get("int8", 2 * base) == pytest.approx((4 if geforce else 2) * base, rel=slack)
    assert have.get("fp4", 0) == pytest.approx((8 if geforce else 4) * base if "fp4" in have else 0, rel=slack)
    assert base < 70 * gpu.bandwidth_gb_s  # no rate in another unit


@pytest.mark.parametrize("name", SLICES)
def test_slice_is_a_share_of_its_gpu(name: str) -> None:
    """Bandwidth by memory slices; rates by multiprocessors; no link; the same chip."""
    gpu, whole, kind = GPUS[name], parent(name), name.rpartition("-")[2]
    memory = {"1g": 1, "2g": 2, "3g": 4, "4g": 4, "7g": 8}[kind]
    assert gpu.bandwidth_gb_s == pytest.approx(whole.bandwidth_gb_s * memory / 8, abs=0.06)
    assert gpu.compute_capability == whole.compute_capability
    assert gpu.nvlink_gb_s == 0
    assert gpu.memory_mib <= whole.memory_mib * memory / 8
    shares = {have.tera / of.tera for have, of in zip(gpu.rates, whole.rates, strict=True)}
    assert max(shares) - min(shares) < 0.005
    assert 0.9 * int(kind[0]) / 8 < max(shares) <= 1.001
    assert f"MIG {kind}." in gpu.nvml_names[0]
    assert gpu.nvml_names[0].startswith(whole.nvml_names[0])
    assert re.search(rf"{kind}\.{gpu.memory_gb:g}gb$", gpu.name)


@pytest.mark.parametrize("name", [name for name in SLICES if name.endswith("-1g")])
def test_slices_sum_to_no_more_than_the_gpu(name: str) -> None:
    """Seven small ones, or one of three and one of four, fit the GPU, in memory and in rate."""
    parts, whole = siblings(name), parent(name)
    for together in ([parts["1g"]] * 7, [parts["3g"], parts["4g"]], [parts["2g"]] * 3 + [parts["1g"]], [parts["7g"]]):
        assert sum(part.memory_mib for part in together) <= whole.memory_mib
        assert sum(rates(part)["fp16"] for part in together) <= 1.001 * rates(whole)["fp16"]
        assert sum(part.bandwidth_gb_s for part in together) <= 1.001 * whole.bandwidth_gb_s


@pytest.mark.parametrize("name", NAMES)
def test_says_where_it_is_from(name: str) -> None:
    """Two pages or more; a reading of the memory stands in one, and a slice says what is derived."""
    gpu = GPUS[name]
    assert len({page.url for page in gpu.sources.pages}) >= 2
    said = " ".join(page.says for page in gpu.sources.pages)
    if gpu.memory_mib_status == "read":
        assert str(gpu.memory_mib) in said.replace(",", "")
    assert name not in SLICES or "derived:" in said


def test_the_driver_gives_each_name_to_one_record() -> None:
    """--gpu auto goes by it."""
    seen: dict[str, str] = {}
    for name in NAMES:
        for given in GPUS[name].nvml_names:
            assert seen.setdefault(given.casefold(), name) == name
            found, notes = resolve_gpu(STORE, given)
            assert found.id == name
            assert bool(notes) == (given in SHARED), given


@pytest.mark.parametrize(("written", "meant", "several"), WRITTEN)
def test_name_means_what_people_mean(written: str, meant: str, several: bool) -> None:
    """With a note exactly where it fits other products."""
    found, notes = resolve_gpu(STORE, written)
    assert found.id == meant
    assert bool(notes) == several


@pytest.mark.parametrize("gpu_id", NAMES)
def test_no_gpu_is_suggested_twice(gpu_id: str) -> None:
    """Under several of its names: whatever letter of its names is wrong."""
    for name in (gpu_id, *GPUS[gpu_id].aliases):
        for typo in (name[:-1] + "?", name[:2] + "?" + name[3:]):
            with pytest.raises(UnknownName) as raised:
                resolve_gpu(STORE, typo)
            offers = str(raised.value).partition("did you mean ")[2].removesuffix("?").split(", ")
            meant = [resolve_gpu(STORE, each)[0].id for each in offers if each]
            assert len(set(meant)) == len(meant), (typo, offers)


def test_the_nearest_name_comes_first() -> None:
    """A farther name of the same GPU moves it no further back."""
    with pytest.raises(UnknownName, match=r"did you mean H100-80G, "):
        resolve_gpu(STORE, "H100-81G")
