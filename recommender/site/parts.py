"""What hand-written pages take in from the knowledge, so that they keep no copy of a fact."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from recommender import shapes, tokens
from recommender.about import about
from recommender.cli import root
from recommender.facts import GIB
from recommender.site import api, sidebyside
from recommender.site import markup as m
from recommender.site.book import Book
from recommender.site.options import eras
from recommender.site.picker import picker
from recommender.store import data_root

USUAL = ("internvl3-8b", "internvl3-8b-awq", "internvl3-38b-awq", "qwen2.5-7b-instruct", "llama-3.1-8b-instruct")
"""The models of the examples."""
LENGTH = 4096
SIZES = ((448, 448), (800, 600), (1280, 720), (1920, 1080), (4000, 3000))


def covered(book: Book, _: str) -> Iterator[str]:
    """What the knowledge holds, in numbers."""
    store = book.store
    yield book.t(
        "[{gpus} GPUs](/gpus/index.md), [{models} models](/models/index.md), [{options} options](/flags/index.md) over "
        "[{releases} releases](/releases/index.md) of LMDeploy ({first} to {last}), "
        "[{claims} claims with verdicts](/claims.md) by [{advisers} advisers](/advisers/index.md) and others, and "
        "[{runs} measured runs](/evidence/index.md)."
    ).format(
        gpus=len(store.gpus),
        models=len(store.models),
        options=len(store.flags),
        releases=len(book.releases),
        first=book.releases[0].id,
        last=book.newest.id,
        claims=len(store.claims),
        advisers=len(store.advisers),
        runs=len(book.runs),
    )


def kv_bytes(book: Book, _: str) -> Iterator[str]:
    """Bytes of a cached token, and of a whole sequence, by precision."""
    rows = []
    for name in USUAL:
        model = book.store.models[name]
        each = [shapes.kv_bytes_per_token(model, bits) for bits in (16, 8, 4)]
        shares = [f"{size:,} ({size / each[0]:.1%})" for size in each[1:]]
        sequence = f"{LENGTH * each[0] / GIB:.2f}"
        rows.append((f"[{m.text(model.hub)}](/models/{name}.md)", f"{each[0]:,}", *shares, sequence))
    head = [book.t("Model"), *(book.t("{0} bits").format(bits) for bits in (16, 8, 4))]
    yield from m.table([*head, "GiB"], rows)
    yield book.t("GiB: of {0} tokens at 16 bits.").format(f"{LENGTH:,}") + "\n"


def image_tokens(book: Book, name: str) -> Iterator[str]:
    """Tiles and tokens of one image by its size, for a model that cuts images into tiles."""
    vision = book.store.models[name].vision[0]
    rows = (
        (f"{size[0]}x{size[1]}", str(tokens.tiles(vision, *size)), f"{tokens.image_tokens(vision, *size):,}")
        for size in SIZES
    )
    head = ("Image", "Tiles, the thumbnail counted", "Tokens")
    yield from m.table([book.t(each) for each in head], rows)


def weights(book: Book, names: str) -> Iterator[str]:
    """Size of checkpoints, and of the part that quantisation leaves alone."""
    rows = []
    for name in names.split():
        model = book.store.models[name]
        kind = model.quantization[0].method if model.quantization else model.text.dtype
        sizes = (shapes.weight_bytes(model), shapes.text_weight_bytes(model), shapes.vision_weight_bytes(model))
        rows.append((f"[{m.text(model.hub)}](/models/{name}.md)", kind, *(f"{size / GIB:,.2f}" for size in sizes)))
    head = ("Checkpoint", "Weights", "GiB", "language model", "image encoder")
    yield from m.table([book.t(each) for each in head], rows)


def split(book: Book, name: str) -> Iterator[str]:
    """Bytes on each card, by the number of cards."""
    model = book.store.models[name]
    rows = (
        (
            str(tp),
            f"{shapes.weight_bytes_per_rank(model, tp) / GIB:,.2f}",
            f"{shapes.kv_bytes_per_token(model, 16, tp):,}",
        )
        for tp in (1, 2, 4, 8)
    )
    link = f"[{m.text(model.hub)}](/models/{name}.md)"
    yield book.t("{model}, which has {heads} key/value heads:").format(model=link, heads=model.text.kv_heads) + "\n"
    head = ("Cards", "GiB of weights a card", "KV bytes a token and card")
    yield from m.table([book.t(each) for each in head], rows)


def life(book: Book, option: str) -> Iterator[str]:
    """The eras of an option."""
    yield book.t("{option} over the releases:").format(option=m.named_option(book.store, option)) + "\n"
    yield from eras(book, about(book.store, book.store.flags[option], book.newest))


def claim(book: Book, name: str) -> Iterator[str]:
    """One claim with its verdict."""
    known = book.store.claims[name]
    statement = f"[{m.text(book.t(known.statement))}](/claims.md#{name})"
    yield f"{m.verdict(known.verdict, book.say)} {statement} {m.prose(book.store, book.t(known.because))}"


def file(_: Book, words: str) -> Iterator[str]:
    """A file of the checkout as it is: its path, and what it is written in."""
    path, language = words.split()
    yield f"```{language}\n{(data_root() / path).read_text('utf-8').rstrip()}\n```"


def printed(_: Book, words: str) -> Iterator[str]:
    """A command as it is typed, and what it prints; a folder that it writes is one that goes again."""
    asked = shlex.split(words)
    with TemporaryDirectory() as place:
        folder = f"{place}/"
        own = [folder + each if before == "-o" else each for before, each in zip(("", *asked), asked, strict=False)]
        done = CliRunner().invoke(root, own, prog_name="recommend")
    if done.exit_code:
        raise ValueError(f"recommend {words}: exit code {done.exit_code}, {done.output or done.exception!r}")
    yield f"```sh\nrecommend {words}\n```\n\n```text\n{done.stdout.replace(folder, '').rstrip()}\n```"


PARTS: Mapping[str, Callable[[Book, str], Iterator[str]]] = {
    "api-answers": api.counted,
    "api-kinds": api.described,
    "claim": claim,
    "covered": covered,
    "file": file,
    "image-tokens": image_tokens,
    "kv-bytes": kv_bytes,
    "life": life,
    "measured": lambda book, _: sidebyside.measured_table(book),
    "picker": picker,
    "picture": lambda book, _: sidebyside.picture(book),
    "printed": printed,
    "split": split,
    "weights": weights,
}
"""What ``<!-- generated: NAME WORDS -->`` in a hand-written page stands for; a part is given its words."""
