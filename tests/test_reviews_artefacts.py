"""What recommend writes, recommend review finds nothing in; and the servers of it are found."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
from artefacts import MODELS, answer, requests
from hypothesis import given, settings

from recommender.choose.recommend import Recommendation
from recommender.common.errors import RequestError
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.review import engine

FORMS = {"bash": "serve.sh", "python": "serve.py", "docker": "serve.sh", "client": "client.py", "env": "serve.env"}
LAUNCHES = {"python": 1, "docker": 1, "client": 0, "env": 0}
CARDS = (
    ("h100-sxm-80g", 1), ("h100-sxm-80g", 2), ("a100-sxm-80g", 1), ("a100-sxm-80g", 8), ("h200-sxm", 4), ("l4", 2),
    ("rtx-4090", 1), ("v100-sxm2-16g", 2),
)  # fmt: skip


def written(request: Request) -> dict[str, str]:
    """The artefacts of a request by form; none where nothing fits, and no container for several servers."""
    found = answer(request)
    made = {}
    for form in FORMS if isinstance(found, Recommendation) else ():
        try:
            made[form] = render(found, form)
        except RequestError:
            assert form == "docker"
    return made


def assert_clean(request: Request) -> None:
    for form, text in written(request).items():
        found = engine.review(FORMS[form], text)
        said = [(finding.rule.id, finding.place.line, finding.message) for finding in found.findings]
        assert not said, (request, form, said)
        assert not found.defects, (request, form, found.defects)
        if form in LAUNCHES:
            assert len(found.script.launches) == LAUNCHES[form], (request, form)


@cache
def served() -> tuple[Request, ...]:
    """Every load on cards old and new, one and several, and two servers of one card."""
    made = [
        Request(gpu=gpu, gpu_count=count, load=load) for gpu, count in CARDS for load in ("single", "medium", "high")
    ]
    made += [Request(gpu="h100-sxm-80g", model="internvl3-2b-awq", concurrency=many) for many in (16, 64, 300)]
    return tuple(made)


@pytest.mark.parametrize("at", range(len(served())))
def test_what_recommend_writes_reviews_clean(at: int) -> None:
    """Every form of the usual requests."""
    assert_clean(served()[at])


def test_those_are_of_every_kind() -> None:
    """One server, several with a proxy, and several of one card under MPS are among them."""
    found = [answer(each) for each in served()]
    kinds = Counter(
        (each.config.servers > 1, each.config.share > 1) for each in found if isinstance(each, Recommendation)
    )
    assert {(False, False), (True, False), (True, True)} <= kinds.keys(), kinds


@settings(max_examples=25, deadline=None)
@given(requests())
def test_whatever_is_asked_the_answer_reviews_clean(request: Request) -> None:
    """Requests over everything that can be asked."""
    assert_clean(request)


@pytest.mark.parametrize("model", MODELS[::3])
def test_models_review_clean(model: str) -> None:
    """Whatever the checkpoint needs, its remote code and its template among it."""
    assert_clean(Request(gpu="h100-sxm-80g", gpu_count=2, model=model, load="low"))


def test_the_servers_of_an_artefact_are_found() -> None:
    """The one that is started, which a loop restarts too, and those behind a proxy, with their options."""
    one = engine.review("serve.sh", written(Request(gpu="h100-sxm-80g", load="single"))["bash"]).script.launches
    assert [(each.starts, bool(each.loop)) for each in one] == [("api_server", True)]
    two = engine.review("serve.sh", written(Request(gpu="h100-sxm-80g", gpu_count=2, load="high"))["bash"])
    proxy, server = two.script.launches
    assert (proxy.starts, server.starts) == ("proxy", "api_server")
    for launch in (*one, server):
        assert launch.model.value == "OpenGVLab/InternVL3-8B-AWQ"
        given = {option.name: option.values[0].value for option in launch.options if option.values}
        assert given["--session-len"] == "4096"
        assert given["--quant-policy"] == "0"


def test_an_artefact_is_weighed_for_another_load() -> None:
    """Made for one request at a time, it is too small for sixteen; for its own load nothing speaks against it."""
    text = written(Request(gpu="h100-sxm-80g", load="single"))["bash"]
    assert not engine.review("serve.sh", text, {"gpu": "H100", "load": "single"}).findings
    found = engine.review("serve.sh", text, {"gpu": "H100", "load": "16"}).findings
    assert "LMD206" in {each.rule.id for each in found}


def test_an_artefact_that_was_edited_is_weighed_again() -> None:
    """The values are left alone only as long as they are those that recommend chose."""
    text = written(Request(gpu="h100-sxm-80g", load="high"))["docker"]
    assert not engine.review("serve.sh", text).findings
    lines = ["  --max-batch-size 1 \\" if line.startswith("  --max-batch-size") else line for line in text.split("\n")]
    assert "LMD206" in {each.rule.id for each in engine.review("serve.sh", "\n".join(lines)).findings}


def test_a_pipe_from_recommend_to_review() -> None:
    """As people would: recommend … | recommend review -."""
    recommend = [sys.executable, "-m", "recommender"]
    for form in FORMS:
        made = subprocess.run(
            [*recommend, "--gpu", "H100-80G", "-q", "--format", form], capture_output=True, check=True
        )
        found = subprocess.run([*recommend, "review", "-"], input=made.stdout, capture_output=True, check=False)
        assert found.returncode == 0, found.stdout.decode()
        assert b"nothing found" in found.stdout
