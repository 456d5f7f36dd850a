"""The steps from a request to an explained recommendation, with the choice itself replaced where it does not matter."""

from types import MappingProxyType
from typing import Any

import pytest
from variants import IMAGES, STORE, configuration, resolve, store_with

from recommender import __version__
from recommender.choose import constraints, rate, recommend
from recommender.choose.request_change import RequestChange
from recommender.choose.select import Choice, NoCandidate, Rejections, choose, predict
from recommender.common.errors import RequestError, UnknownName
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest, resolve_with_checkpoint

FINDING = constraints.ConstraintFinding("batch", "reject", "too small", "more", STORE.claims)  # type: ignore[arg-type]


def choices(monkeypatch: pytest.MonkeyPatch, *refused: tuple[tuple[str, int], ...]) -> list[int]:
    """Refuses as often as that, with these rejections, then chooses; the concurrency of each try."""
    tried: list[int] = []

    def search(resolved: ResolvedRequest, **_how: bool) -> Choice | Rejections:
        tried.append(resolved.concurrency)
        if len(tried) <= len(refused):
            return Rejections([], False, 3, refused[len(tried) - 1], False)
        return Choice(predict(resolved, configuration(max_batch_size=64)), (FINDING,), 7, (("tp", 2),))

    def choose(resolved: ResolvedRequest, _room: bool = True) -> Choice | NoCandidate:
        if resolved.concurrency in tried:  # searched before: why nothing fits
            return NoCandidate(FINDING, (), 3, refused[tried.index(resolved.concurrency)], False)
        outcome = search(resolved)
        return NoCandidate(FINDING, (), 3, outcome.rejected, False) if isinstance(outcome, Rejections) else outcome

    monkeypatch.setattr(rate, "search", search)
    monkeypatch.setattr(rate, "choose", choose)
    monkeypatch.setattr(recommend, "choose", choose)
    return tried


def test_a_recommendation_tells_what_was_asked_and_what_was_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request and its facts, the configuration with its estimates, warnings, counts, like runs, who made it."""
    choices(monkeypatch)
    request = Request(gpu="h100-sxm-80g", concurrency=4)
    made = recommend.recommend(request)
    assert made.request == request
    assert (made.resolved.model.id, made.resolved.concurrency) == (IMAGES, 4)
    assert (made.adviser, made.added, made.left_out) == ("", (), ())
    assert (made.considered, made.rejected, made.findings) == (7, (("tp", 2),), (FINDING,))
    candidate = predict(resolve(concurrency=4), configuration(max_batch_size=64))
    assert (made.config, made.memory, made.speed) == (candidate.config, candidate.memory, candidate.speed)
    assert {each.option for each in made.explanations} > {"session-len", "omp-num-threads", "max-tokens"}
    assert made.similar_runs
    assert made.made_by == f"lmdeploy-recommender {__version__}"


def test_where_nothing_fits_the_nearest_change_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what binds; whether the weights are too large decides what is tried."""
    seen: list[bool] = []

    def suggest(resolved: ResolvedRequest, nothing: NoCandidate) -> RequestChange:
        seen.append(nothing.too_large)
        return RequestChange("--load 1", "less")

    monkeypatch.setattr(recommend, "suggest_change", suggest)
    for too_large in (False, True):
        nothing = NoCandidate(FINDING, (), 3, (), too_large)
        monkeypatch.setattr(recommend, "choose", lambda *_, nothing=nothing: nothing)
        with pytest.raises(recommend.NothingFits, match=r"^too small$") as raised:
            recommend.recommend(Request(gpu="l4", concurrency=4))
        assert raised.value.nothing is nothing
        assert raised.value.resolved.gpu.id == "l4"
        assert raised.value.change == RequestChange("--load 1", "less")
    assert seen == [False, True]


@pytest.mark.parametrize(("concurrency", "fits"), [(8, True), (16, False)])
def test_what_binds_is_not_what_nobody_asked_for(concurrency: int, fits: bool) -> None:
    """The engine has no 8-bit cache for latent attention; that 16 bits do not hold the load says more."""
    asked = {"gpu": "b200", "gpu_count": 8, "model": "kimi-k2-instruct", "workload": "agent"}
    if fits:
        assert recommend.recommend(Request(**asked, concurrency=concurrency)).config.kv_bits == 16
        return
    with pytest.raises(recommend.NothingFits) as raised:
        recommend.recommend(Request(**asked, concurrency=concurrency))
    assert raised.value.nothing.binding.constraint == "kv-holds-concurrency"
    with pytest.raises(recommend.NothingFits) as raised:
        recommend.recommend(Request(**asked, concurrency=concurrency, kv="int8"))
    assert raised.value.nothing.binding.constraint == "kv-bits-latent-pytorch"


MISSED = (("tp", 1), ("goal-rps", 2))


def test_a_rate_is_reached_with_as_few_in_flight_as_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """One, two, four: doubled while the rate is missed, and twice more, which shortens nothing."""
    tried = choices(monkeypatch, MISSED, MISSED, MISSED)
    made = recommend.recommend(Request(gpu="h100-sxm-80g", rps=20.0))
    assert tried == [1, 2, 4, 8, 16, 32]
    assert made.resolved.concurrency == 8


def test_a_rate_is_sought_up_to_1024_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is told that it cannot be reached."""
    tried = choices(monkeypatch, *[MISSED] * 50)
    monkeypatch.setattr(recommend, "suggest_change", lambda resolved, nothing: None)
    with pytest.raises(recommend.NothingFits) as raised:
        recommend.recommend(Request(gpu="h100-sxm-80g", rps=20.0))
    assert tried == [2**power for power in range(11)]
    assert raised.value.resolved.concurrency == 1024


def test_where_the_rate_is_not_what_binds_no_more_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """More in flight need more memory; the answer is about the last that fits in it."""
    tried = choices(monkeypatch, MISSED, (("memory-fits", 3),))
    monkeypatch.setattr(recommend, "suggest_change", lambda resolved, nothing: None)
    with pytest.raises(recommend.NothingFits) as raised:
        recommend.recommend(Request(gpu="h100-sxm-80g", rps=20.0))
    assert tried == [1, 2]
    assert (raised.value.nothing.rejected, raised.value.resolved.concurrency) == (MISSED, 1)


@pytest.mark.parametrize(("asked", "concurrency"), [({"load": "medium"}, 16), ({"concurrency": 3}, 3)])
def test_a_load_that_was_asked_for_is_kept(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], concurrency: int
) -> None:
    """A rate besides it is a goal only."""
    tried = choices(monkeypatch)
    recommend.recommend(Request(gpu="h100-sxm-80g", rps=20.0, **asked))
    assert tried == [concurrency]


def test_the_rate_is_the_one_constraint_of_the_knowledge() -> None:
    """What the search looks for is a goal that the knowledge knows, and a real rate is reached by it."""
    made = recommend.recommend(Request(gpu="h100-sxm-80g", rps=20.0))
    assert made.speed.rps.value >= 20.0
    assert made.resolved.concurrency > 2
    two = choose(resolve(rps=20.0, concurrency=2))
    assert isinstance(two, NoCandidate)
    assert "goal-rps" in dict(two.rejected)


CHAT = {"model": "qwen2.5-7b-instruct-awq", "workload": "chat"}


@pytest.mark.parametrize(
    ("asked", "bits"),
    [
        ({"gpu": "rtx-4090", "model": "qwen3-8b-fp8", "workload": "chat", "rps": 3.0}, 16),
        ({"gpu": "l4", "rps": 3.0, **CHAT}, 8),
        ({"gpu": "l4", "rps": 1.0, **CHAT}, 16),
        ({"gpu": "l4", "model": "llama-3.1-8b-instruct", "workload": "chat", "rps": 1.0}, 8),
    ],
)
def test_a_rate_costs_no_more_accuracy_than_it_needs(asked: dict[str, Any], bits: int) -> None:
    """A larger batch alone is no reason for fewer bits; clients that never pause show which bits serve the rate.

    16 bits serve it if they could answer a tenth more: closer to the limit requests queue for long.
    """
    assert recommend.recommend(Request(**asked)).config.kv_bits == bits
    rate, served = asked.pop("rps"), {}
    for kv in ("fp16", "int8"):
        fitting = []
        for concurrency in (8, 16, 32, 64, 128):
            try:
                fitting.append(recommend.recommend(Request(**asked, concurrency=concurrency, kv=kv)).speed.rps.value)
            except recommend.NothingFits:
                break
        served[kv] = max(fitting)
    assert (served["fp16"] >= 1.1 * rate) == (bits == 16)
    assert served["int8"] >= rate


@pytest.mark.parametrize("rate", [0.5, 1.5, 2.5, 3.0])
def test_no_more_is_answered_than_arrives_or_can_be_served(rate: float) -> None:
    """What can be served is what clients that never pause get from the same batch."""
    made = recommend.recommend(Request(gpu="l4", rps=rate, **CHAT))
    full = Request(gpu="l4", concurrency=made.config.max_batch_size, **CHAT)
    given = {"max-batch-size": str(made.config.max_batch_size), "quant-policy": str(made.config.kv_bits % 16)}
    most = recommend.recommend_adviser(full, "defaults", given).speed.rps
    found = made.speed.rps
    for end, limit in ((found.low, most.low), (found.value, most.value), (found.high, most.high)):
        assert end == pytest.approx(min(rate, limit), rel=0.02)
    warned = [finding for finding in made.findings if finding.constraint == "rate-near-limit"]
    assert bool(warned) == (found.low < rate)


def test_only_goals_are_told_to_need_less_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning of anything else stays as it is."""
    late = constraints.ConstraintFinding("goal-p99", "warn", "May be late.", "wait", FINDING.sources)

    def near(resolved: ResolvedRequest, _room: bool = True) -> NoCandidate:
        close = Choice(predict(resolved, configuration()), (late, FINDING), 3, ())
        return NoCandidate(FINDING, (), 3, (), False, close)

    monkeypatch.setattr(recommend, "choose", near)
    for hint, told in (("; send less", "May be late; send less."), ("", "May be late.")):
        monkeypatch.setattr(recommend, "offer_fewer_tiles", lambda *_, hint=hint: hint)
        made = recommend.recommend(Request(gpu="h100-sxm-80g", concurrency=1))
        assert [finding.message for finding in made.findings] == [told, FINDING.message]


def test_advice_for_one_engine_tells_nothing_of_the_other() -> None:
    """TurboMind 0.14.0 does not serve Qwen2-VL, so we would take the PyTorch engine; so does advice that names it."""
    request = Request(gpu="h100-sxm-80g", model="qwen2-vl-7b-instruct", lmdeploy="0.14.0", concurrency=1)
    told = {
        backend: any(
            note.startswith("PyTorch engine: ")
            for note in recommend.configure_adviser(request, "defaults", {"backend": backend})[0].resolved.notes
        )
        for backend in ("turbomind", "pytorch")
    }
    assert told == {"turbomind": False, "pytorch": True}


def test_advice_does_not_stretch_a_models_context() -> None:
    """Qwen2.5-7B holds 32,768 tokens; a longer session that was asked for is a warning's matter."""
    request = Request(gpu="h100-sxm-80g", model="qwen2.5-7b-instruct", prompt_tokens=32_768, output_tokens=16)
    with pytest.raises(RequestError, match="context"):
        recommend.configure_adviser(request, "defaults")
    setup, _ = recommend.configure_adviser(request, "defaults", {"session-len": "40000"})
    assert setup.config.session_len == 40_000


def test_an_advisers_configuration_is_told_with_what_was_changed() -> None:
    """Nothing else was considered; its own findings and explanations."""
    made = recommend.recommend_adviser(
        Request(gpu="h100-sxm-80g", concurrency=1), "claude", MappingProxyType({"session-len": "8192"}), ["tp"]
    )
    assert (made.adviser, made.considered, made.rejected) == ("claude", 1, ())
    assert (made.added, made.left_out) == ((("session-len", "8192"),), ("tp",))
    assert made.config.session_len == 8192
    by_option = {each.option: each for each in made.explanations}
    assert by_option["session-len"].reason == "Added with --with."
    assert by_option["quant-policy"].emitted
    assert any(finding.severity == "reject" for finding in made.findings)
    assert made.similar_runs
    plain = recommend.recommend_adviser(Request(gpu="h100-sxm-80g", concurrency=1), "claude")
    assert (plain.added, plain.left_out, plain.config.session_len) == ((), (), 4096)


def test_the_knowledge_may_be_given() -> None:
    """Instead of what is installed."""
    fewer = store_with(gpus={"h100-sxm-80g": STORE.gpus["h100-sxm-80g"]})
    for answer in (recommend.recommend, lambda *args: recommend.recommend_adviser(args[0], "claude", store=args[1])):
        with pytest.raises(UnknownName, match="unknown GPU 'l4'"):
            answer(Request(gpu="l4", concurrency=1), fewer)
        assert answer(Request(gpu="h100-sxm-80g", concurrency=1), fewer).resolved.store is fewer


def test_a_model_that_is_no_folder_is_unknown(tmp_path: Any) -> None:
    """A name with near names; a path that is no checkpoint says so; near names are not asked for a path."""
    with pytest.raises(UnknownName, match="unknown model 'internvl3-8b-awk': did you mean"):
        resolve_with_checkpoint(Request(gpu="l4", model="internvl3-8b-awk"), STORE)
    with pytest.raises(UnknownName, match=r"^--model: '.*missing' is not a folder with a config\.json$"):
        resolve_with_checkpoint(Request(gpu="l4", model=str(tmp_path / "missing")), STORE)
    assert resolve_with_checkpoint(Request(gpu="l4", model=IMAGES), STORE).model.id == IMAGES


def test_a_folder_is_read_from_its_own_files(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, exact bytes and path of the checkpoint; a name of the knowledge comes first."""
    from recommender.request import checkpoint

    read: list[Any] = []

    def reading(folder: Any, store: Any) -> Any:
        read.append((folder, store))
        return STORE.models[IMAGES], 12_345, "here"

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(checkpoint, "read", reading)
    made = resolve_with_checkpoint(Request(gpu="l4", model=str(tmp_path)), STORE)
    assert (made.model.id, made.weight_bytes, made.model_source) == (IMAGES, 12_345, "here")
    assert read == [(tmp_path, STORE)]
