"""Why an option has its value: how the value is written, whether it is, and what is said of it."""

import re
from types import SimpleNamespace as Namespace
from typing import Any

import pytest
from variants import STORE, configuration, resolve, store_with, variant

from recommender.choose import reasons
from recommender.choose.recommend import recommend
from recommender.choose.select import predict
from recommender.request.request import Request


class SimpleNamespace(Namespace):
    """Hashable by identity, as records of the index are; without a text for the table."""

    brief = unset = ""
    __hash__ = object.__hash__


NOTHING = SimpleNamespace(code=(), pages=(), evidence=())


def option(**changed: Any) -> Any:
    """An option that carries the length of a session."""
    base = {"id": "mine", "setting": "session_len", "emit": "changed", "encodings": (), "reasons": ()}
    return variant(STORE.flags["session-len"], **(base | {"summary": "What it is.", "option": "--mine"} | changed))


def era(**changed: Any) -> Any:
    """A release's form of it: a number that TurboMind reads."""
    base = STORE.flags["session-len"].eras[-1]
    return variant(base, **({"type": "int", "default": "", "read_by": ("turbomind",)} | changed))


def candidate(**changed: Any) -> Any:
    """A measured configuration."""
    return predict(resolve(), configuration(**changed))


@pytest.mark.parametrize(
    ("changed", "setting", "text"),
    [
        ({"session_len": 8192}, "session_len", "8192"),
        ({"cache_ratio": 0.05}, "cache_ratio", "0.05"),
        ({"cache_ratio": 0.5}, "cache_ratio", "0.5"),
        ({"temperature": 0.0}, "temperature", "0"),
        ({"prefix_caching": True}, "prefix_caching", "true"),
        ({"prefix_caching": False}, "prefix_caching", "false"),
        ({"dtype": "bfloat16"}, "dtype", "bfloat16"),
        ({"dtype": "bfloat16"}, "", "a default"),
    ],
)
def test_a_decided_value_is_written_as_the_option_takes_it(changed: dict[str, Any], setting: str, text: str) -> None:
    """Numbers without trailing zeros, switches as words; where nothing is decided the default stands."""
    assert reasons.format_value(option(setting=setting), candidate(**changed), "a default") == text


def test_encodings_rename_values() -> None:
    """16 bits of the cache are 0 to LMDeploy; what has no encoding is written plainly."""
    quant = STORE.flags["quant-policy"]
    assert [reasons.format_value(quant, candidate(kv_bits=bits), "") for bits in (16, 8, 4)] == ["0", "8", "4"]
    tiles = STORE.client["max-dynamic-patch"]
    assert [reasons.format_value(tiles, candidate(max_tiles=most), "") for most in (0, 6)] == ["", "6"]


@pytest.mark.parametrize(
    ("changed", "value", "form", "emitted"),
    [
        ({}, "4096", era(), True),
        ({}, "8192", era(default="8192"), False),
        ({"emit": "always"}, "8192", era(default="8192"), True),
        ({"emit": "always"}, "", era(), False),
        ({"emit": "never"}, "4096", era(), False),
        ({"setting": ""}, "4096", era(), False),
        ({}, "4096", era(read_by=("server",)), True),
        ({}, "4096", era(read_by=("server", "pytorch")), True),
        ({}, "4096", era(read_by=("pytorch",)), False),
        ({"emit": "always"}, "4096", era(read_by=("nothing",)), False),
        ({}, "true", era(type="bool", default="false"), True),
        ({"emit": "always"}, "false", era(type="bool", default="false"), False),
        ({}, "false", era(type="bool", default="true"), False),
        ({}, "true", era(type="bool", default="true"), True),
        # What is no flag has no releases.
        ({}, "4", None, True),
        ({}, "default", None, False),
        ({"emit": "always"}, "default", None, True),
    ],
)
def test_an_option_is_written_where_it_is_decided_read_and_not_its_default(
    changed: dict[str, Any], value: str, form: Any, emitted: bool
) -> None:
    """A switch only where it is on; always or never where the record says so."""
    default = form.default if form else "default"
    assert reasons.is_emitted(option(**changed), value, default, form, "turbomind") is emitted


@pytest.mark.parametrize("kind", ["code", "pages", "evidence"])
def test_a_fact_that_somebody_looked_up_is_verified(kind: str) -> None:
    """In code, on a page or in runs of our own."""
    assert not reasons.has_source(NOTHING)
    assert reasons.has_source(SimpleNamespace(**(vars(NOTHING) | {kind: ("here",)})))


def explained(**kinds: Any) -> dict[str, Any]:
    """The explanations of a measured configuration, by option."""
    resolved = resolve(store_with(**kinds))
    return {each.option: each for each in reasons.explain(resolved, predict(resolved, configuration()))}


def one(**changed: Any) -> Any:
    """The explanation of a single flag of one's own."""
    made = option(**{"eras": (era(since="0.7.0", until="", default="128"),), **changed})
    return explained(flags={"mine": made}, claims=changed.pop("claims", {}))["mine"]


def test_every_option_of_the_release_is_explained_in_order() -> None:
    """Flags by id, then variables, then what clients send; each with its name and kind."""
    resolved = resolve()
    found = reasons.explain(resolved, candidate())
    names = [*resolved.options, *STORE.environment, *STORE.client]
    assert [each.option for each in found] == names
    kinds = ["flag"] * len(resolved.options)
    kinds += [record.kind for record in (*STORE.environment.values(), *STORE.client.values())]
    assert [each.kind for each in found] == kinds
    by_option = {each.option: each for each in found}
    assert by_option["session-len"].name == "--session-len"
    assert by_option["omp-num-threads"].name == "OMP_NUM_THREADS"
    assert by_option["omp-num-threads"].value == "4"
    assert by_option["trust-remote-code"].switch
    assert not by_option["session-len"].switch
    assert not by_option["omp-num-threads"].switch
    assert by_option["max-tokens"].emitted


def test_an_explanation_has_value_default_and_reason() -> None:
    """Without a reason that holds, the option's summary and its sources."""
    found = one()
    assert (found.option, found.kind, found.name) == ("mine", "flag", "--mine")
    assert (found.value, found.default, found.emitted) == ("4096", "128", True)
    assert found.reason == "What it is."
    assert found.sources is STORE.flags["session-len"].sources
    undecided = one(setting="")
    assert (undecided.value, undecided.default, undecided.emitted) == ("128", "128", False)


def test_the_first_reason_that_holds_is_given() -> None:
    """All its conditions must; filled with the values; its own sources where there are any."""
    own = SimpleNamespace(code=(), pages=("here",), evidence=())
    texts = (
        SimpleNamespace(when=("config.tp == 1", "config.tp == 2"), text="never", sources=own),
        SimpleNamespace(
            when=("config.tp == 1",), text="{config.session_len} tokens", sources=own, brief="of {config.session_len}"
        ),
        SimpleNamespace(when=(), text="always", sources=own),
    )
    found = one(reasons=texts)
    assert (found.reason, found.brief, found.sources) == ("4096 tokens", "of 4096", own)
    unsourced = one(reasons=(SimpleNamespace(when=(), text="always", sources=NOTHING),))
    assert unsourced.reason == "always"
    assert unsourced.sources is STORE.flags["session-len"].sources


def test_what_advisers_say_of_an_option_is_told() -> None:
    """Of their own configurations, a range as such; what was said in passing or of other options is not."""
    base = STORE.advisers["claude"]

    def said(name: str, **changed: Any) -> Any:
        values = {"option": "mine", "value": "1", "up_to": "", "final": True, "reason": "So."}
        return variant(base, id=name, settings=(variant(base.settings[0], **(values | changed)),))

    made = option(eras=(era(since="0.7.0", until=""),))
    known = {
        "a": said("a"),
        "b": said("b", up_to="4"),
        "c": said("c", final=False),
        "d": said("d", option="other"),
    }
    advice = explained(flags={"mine": made}, advisers=known)["mine"].advice
    assert [(each.adviser, each.value, each.reason) for each in advice] == [("a", "1", "So."), ("b", "1 to 4", "So.")]


def test_verdicts_are_those_of_the_release() -> None:
    """Of claims about this option that hold in it."""
    base = next(iter(STORE.claims.values()))

    def claim(name: str, **changed: Any) -> Any:
        values = {"statement": "It is.", "verdict": "refuted", "because": "It is not.", "options": ("mine",)}
        return variant(base, id=name, **(values | {"since": "0.7.0", "until": "", "when": ()} | changed))

    made = option(eras=(era(since="0.7.0", until=""),))
    known = {
        "a": claim("a"),
        "b": claim("b", options=("other",)),
        "c": claim("c", until="0.18.0"),
        "d": claim("d", options=("other", "mine"), since="0.18.0"),
    }
    verdicts = explained(flags={"mine": made}, claims=known)["mine"].verdicts
    assert [each.claim for each in verdicts] == ["a", "d"]
    first = verdicts[0]
    assert (first.statement, first.verdict, first.because) == ("It is.", "refuted", "It is not.")
    assert first.sources is base.sources


@pytest.mark.parametrize(
    ("asked", "decided", "said"),
    [
        ({"gpu": "a100-sxm-80g"}, "twice", "The cache is at least twice the need, because the memory is free"),
        ({"gpu": "a100-sxm-80g", "goal": "memory"}, "need", "a margin for the uncertainty"),
        ({"gpu": "l4", "concurrency": 4, "vram_gib": 12.0, "prompt_tokens": 4000}, "half", "up to half of the free"),
    ],
)
def test_the_cache_is_explained_by_what_decided_its_size(asked: dict[str, Any], decided: str, said: str) -> None:
    """The text names the cause, and the cache's own figures show it."""
    made = recommend(Request(**asked))
    assert made.config.cache_sized_by == decided
    reason = next(each.reason for each in made.explanations if each.option == "cache-max-entry-count")
    assert said in reason
    share = made.memory.kv_tokens / made.memory.kv_needed_tokens
    assert {"twice": share > 1.7, "need": share < 1.6, "half": made.config.cache_ratio == 0.5}[decided], share


def test_no_goal_is_named_where_memory_decided() -> None:
    """Accuracy is given up for memory only, so no reason for fewer bits or tiles blames a goal."""
    given_up = 0
    for concurrency, gib in ((16, 12.0), (16, 14.0), (64, 16.0)):
        made = recommend(Request("l4", concurrency=concurrency, vram_gib=gib, prompt_tokens=4000, p99_ms=600_000.0))
        given_up += made.config.kv_bits < 16 or made.config.max_tiles > 0
        texts = [each.reason for each in made.explanations if each.option in ("quant-policy", "max-dynamic-patch")]
        assert not any("goal" in text for text in texts), texts
    assert given_up


OF_IMAGES = re.compile(r"\b(images?|tiles?|vision|InternVL\S*)\b", re.IGNORECASE)


def test_text_requests_read_no_claims_about_images() -> None:
    """Of a text request only claims that hold for it are told; of one with images more."""
    texts, pictures = (
        {verdict.claim for option in made.explanations for verdict in option.verdicts}
        for made in (
            recommend(Request("h100-sxm-80g", model="qwen2.5-7b-instruct", concurrency=16), STORE),
            recommend(Request("h100-sxm-80g", concurrency=16), STORE),
        )
    )
    assert texts < pictures
    for claim in STORE.claims.values():
        assert not OF_IMAGES.search(claim.statement) or not claim.options or claim.when, claim.id
        assert claim.id not in texts or not OF_IMAGES.search(claim.statement), claim.id


CONDITIONAL = [
    ("a100-batch-64-to-128", {"gpu": "a100-sxm-80g"}, {"gpu": "h100-sxm-80g"}),
    ("int4-kv-needed-below-48-gb", {"gpu": "l4"}, {"gpu": "h100-sxm-80g"}),
    ("five-percent-is-200-mb", {"gpu": "h100-sxm-80g"}, {"gpu": "l40s"}),
    ("awq-needs-turbomind", {"model": "qwen3-8b-awq"}, {"model": "qwen3-8b"}),
    ("awq-lowers-memory", {"model": "qwen3-8b-awq"}, {"model": "qwen3-8b-fp8"}),
    ("w4a16-raises-throughput", {"model": "qwen2.5-7b-instruct-gptq-int4"}, {"model": "qwen3-8b"}),
    ("dtype-ignored-for-quantised-now", {"model": "qwen3-8b-fp8"}, {"model": "qwen3-8b"}),
    ("image-is-1400-tokens", {"model": "internvl3-8b"}, {"model": "qwen2.5-vl-7b-instruct"}),
    ("one-gpu-holds-8b-awq", {"model": "internvl3-8b-awq"}, {"model": "internvl3-8b"}),
    ("single-image-makes-batching-uncritical", {"images": 1, "image_width": 448, "image_height": 448},
     {"images": 2, "image_width": 448, "image_height": 448}),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "concerned", "other"), CONDITIONAL)
def test_a_claim_is_told_where_it_concerns_the_request(
    claim: str, concerned: dict[str, Any], other: dict[str, Any]
) -> None:
    """By card, format, model or load."""
    for asked, told in ((concerned, True), (other, False)):
        made = recommend(Request(**{"gpu": "h100-sxm-80g", "concurrency": 4} | asked), STORE)
        assert (claim in {verdict.claim for option in made.explanations for verdict in option.verdicts}) == told, asked


def test_no_answer_tells_what_was_asked_of_the_advisers() -> None:
    """Whose request it was, and in what list its options came, is nothing that a user asks."""
    for option in recommend(Request("h100-sxm-80g", concurrency=4), STORE).explanations:
        assert "option-list-is-vllms" not in {verdict.claim for verdict in option.verdicts}
