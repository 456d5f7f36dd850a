"""What smoke runs measured."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from recommender.knowledge.records.base import Date, Id, Record, Text, Version


class MeasuredLoad(Record):
    """One load on a running server: so many requests always in flight, in ms and requests a second."""

    kind: Literal["image", "text"] = Field(description="what the requests hold")
    image: str = Field(default="", description="width x height in pixels")
    input_tokens: int = Field(description="input tokens of a request, images included")
    output_tokens: int = Field(description="output tokens of a request")
    concurrency: int = Field(description="concurrent requests")
    requests: int = Field(description="requests that were sent")
    failures: int = Field(description="requests that failed")
    rps: float = Field(description="answered requests/s")
    ttft_ms: float = Field(default=0.0, description="median; 0: not measured")
    latencies_ms: tuple[int, ...] = Field(description="every request's, in the order they ended")
    peak_mib: int = Field(description="most memory of the card in MiB")


class MeasuredStart(Record):
    """One server start with its loads. Memory as the driver reports it for the whole card, idle card included."""

    model: Id = Field(description="id of the model")
    flags: tuple[str, ...] = Field(description="options of the start")
    omp_threads: int = Field(description="value of OMP_NUM_THREADS")
    startup_s: float = Field(description="seconds until it answered")
    free_before_cache_mib: float = Field(description="free MiB when the cache was sized")
    cache_mib: float = Field(description="MiB of KV cache")
    start_peak_mib: int = Field(description="most memory during the start in MiB")
    ready_mib: int = Field(description="memory when it was ready in MiB")
    loads: tuple[MeasuredLoad, ...] = Field(default=(), description="loads that were measured")


class Measurement(Record):
    """Runs on one host taken before ``recommend smoke`` wrote evidence; the coefficients were fitted to them."""

    id: Id = Field(description="name of the file")
    taken: Date = Field(description="day of the runs")
    lmdeploy: Version = Field(description="LMDeploy release")
    gpu: Id = Field(description="id of the GPU")
    gpu_name: Text = Field(description="name that the driver reports")
    driver: Text = Field(description="version of the driver")
    memory_mib: int = Field(description="memory of the card in MiB")
    idle_mib: int = Field(description="memory of the idle card in MiB")
    cpus: int = Field(description="CPU cores of the host")
    checkpoints: Text = Field(description="what the weights were")
    starts: tuple[MeasuredStart, ...] = Field(min_length=1, description="server starts")

    @property
    def random_weights(self) -> bool:
        """Whether the weights were made up, so that the output is meaningless."""
        return "random weights" in self.checkpoints


PACKED = "planes:"
PLAIN_LENGTH = 100
"""Characters up to which a list stays plain; so does one that packing makes no shorter."""
LARGEST = 10_000_000
"""Bytes of an unpacked list: more than any load has, and little memory."""
WIDTH = 4
"""Bytes of a number."""


def pack(numbers: str) -> str:
    """Return a long list of numbers as a file keeps it: ``planes:`` and a zlib stream in base 85 (RFC 1924).

    The stream has the lowest byte of all numbers, then the next one, up to the fourth: high bytes are much alike.
    """
    if len(numbers) <= PLAIN_LENGTH:
        return numbers
    values = [int(number) for number in numbers.split()]
    whole = struct.pack(f"<{len(values)}I", *values)
    planes = b"".join(whole[place::WIDTH] for place in range(WIDTH))
    return min(numbers, PACKED + base64.b85encode(zlib.compress(planes, 9)).decode(), key=len)


def unpack(value: object) -> object:
    """Return the numbers of a packed list; anything else unchanged. Raises ValueError for a broken one."""
    if not isinstance(value, str) or not value.startswith(PACKED):
        return value
    stream = zlib.decompressobj()
    try:
        planes = stream.decompress(base64.b85decode(value.removeprefix(PACKED)), LARGEST)
    except (ValueError, zlib.error):
        planes = b""
    count, rest = divmod(len(planes), WIDTH)
    if not stream.eof or rest:
        raise ValueError("not a whole zlib stream in base 85; restore the record from its history")
    whole = bytearray(len(planes))
    for place in range(WIDTH):
        whole[place::WIDTH] = planes[place * count : (place + 1) * count]
    return " ".join(map(str, struct.unpack(f"<{count}I", whole)))


Numbers = Annotated[
    str,
    BeforeValidator(unpack, json_schema_input_type=Annotated[str, Field(pattern=rf"^(\d+( \d+)*|{PACKED}[!-~]+)?$")]),
    Field(pattern=r"^(\d+( \d+)*)?$", description="whole numbers with a blank between them; long lists are packed"),
]


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


CORES = r"^(\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*)?$"


def cores(text: str) -> set[int]:
    """CPU cores as ``taskset -c`` takes them: 0-3,8."""
    ends = [each.partition("-") for each in text.split(",") if each]
    return {core for first, _, last in ends for core in range(int(first), int(last or first) + 1)}


class FailedRequests(Record):
    """Requests of a phase that failed alike."""

    cause: Id = Field(description="a failure's name as recommend smoke --help lists them")
    count: Annotated[int, Field(ge=1, description="how many failed so")]
    said: str = Field(description="the first one's answer or error")


class DrawnLoad(Record):
    """What the requests of a phase were drawn from, where they differ, and the tokens of each.

    The lengths are tokens of text without the template: equally likely pairs of a first prompt and an answer, in one
    order. A conversation has ``turns`` requests with one pair; each repeats what was said and adds new text.
    """

    workload: str = Field(default="", description="the record that gave what the command line left open")
    prompts: Numbers = Field(description="tokens of each pair's prompt")
    outputs: Numbers = Field(description="tokens of each pair's answer")
    prefix_tokens: Annotated[int, Field(ge=0, description="the same at the start of every prompt")] = 0
    turns: Annotated[int, Field(ge=1, description="requests of a conversation")] = 1
    max_context: Annotated[int, Field(ge=0, description="prompt and answer were cut to it; 0: no limit")] = 0
    image_mix: str = Field(default="", description="sizes with their shares, such as 448x448:0.7,1280x720:0.3")
    burstiness: Annotated[float, Field(gt=0, description="of arrivals: variation of the gaps; 1: Poisson")] = 1.0
    input_tokens: Numbers = Field(default="", description="of each answer in latencies_ms, as the server counted")
    output_tokens: Numbers = Field(default="", description="output tokens of each answer in latencies_ms")
    trace_speed: Annotated[float, Field(ge=0, description="so many times as fast as the trace; 0: no trace")] = 0.0
    arrivals_ms: Numbers = Field(default="", description="of each request of a trace, since the first; pairs as sent")
    shared_with: Numbers = Field(default="", description="place, from 0, of the request whose beginning each repeats")
    shared_tokens: Numbers = Field(default="", description="how many tokens each repeats")
    left_out: Annotated[int, Field(ge=0, description="requests of the trace that were not sent")] = 0
    cut: Annotated[int, Field(ge=0, description="requests of the trace that were cut to fit the session")] = 0


class Phase(Record):
    """One load on running servers: closed loop (so many always in flight) or open (arrivals).

    ``latencies_ms`` has every answer in the order of their ends, and ``gaps_ms`` the time from end to end, the
    first from the first send; added up they are the ends, rounded once each. The first ``window_requests`` of
    them lie in the window of ``window_s``, which ends when no new request is started any more.

    The rate of a closed loop of N counts from the end of the first N requests to the end of the window; a request
    that lies there in part counts by that part. The first N are left out, of the times too: they start at once on an
    idle server, as no steady load does, and answers that come in waves would add or lose a round. By Little's
    law requests/s times the mean latency of the requests that ended in the window are N. A phase where they are not,
    within 5 %, is too short for the way its answers come: no fit, verdict or table counts it. A record without gaps
    does not tell when its requests were sent: the first N to end are left out, and requests a second are N over the
    mean latency of the rest. Where requests are ``drawn``, the longest of the first N may last as long as the window:
    it begins with the Nth answer, and the mean counts a request by its part in the window. Open loops, and a phase
    with failures or of under two rounds: ``window_requests / window_s``, and the times of all answers.

    ``streamed`` tells which answers the times to the first token in ``ttft_ms`` belong to: each number is the
    distance to the answer before, in answers; the first counts from 1. Empty where every request streamed.
    """

    concurrency: Annotated[int, Field(ge=0, description="0: open loop")]
    arrivals_rps: Annotated[float, Field(ge=0, description="0: closed loop")] = 0.0
    images: Annotated[int, Field(ge=0, description="images of a request")] = 0
    image: str = Field(default="", description="width x height in pixels; empty: text only")
    input_tokens: Annotated[int, Field(ge=0, description="median of what the server counted")]
    output_tokens: Annotated[int, Field(ge=0, description="median of what the server counted")]
    window_s: Annotated[float, Field(ge=0, description="seconds of the window")]
    window_requests: Annotated[int, Field(ge=0, description="answers in the window")]
    latencies_ms: Numbers = Field(description="latency of each answer in ms")
    gaps_ms: Numbers = Field(default="", description="ms between the ends of answers")
    ttft_ms: Numbers = Field(description="times to the first token in ms")
    streamed: Numbers = Field(default="", description="which answers ttft_ms belongs to; empty: all")
    drawn: DrawnLoad | None = Field(default=None, description="where requests differ")
    late_ms: Annotated[int, Field(ge=0, description="open loop: how late its latest request was sent")] = 0
    failures: tuple[FailedRequests, ...] = Field(default=(), description="failed requests by cause")
    peak_mib: Annotated[int, Field(ge=0, description="the fullest card, whole")]
    host_cpu_percent: Annotated[float, Field(ge=0, description="CPU use of the host, in percent of all cores")]
    server_cores: Annotated[float, Field(ge=0, description="CPU cores the servers kept busy")]
    running_most: Annotated[int, Field(ge=-1, description="of /metrics, which lags 10 s; -1: it does not tell")]
    waiting_most: Annotated[int, Field(ge=-1, description="most waiting requests in /metrics; -1: not told")]
    cache_use_most: Annotated[float, Field(ge=-1, description="share of the KV cache")]


class Killed(Record):
    """One server of several killed under load (SIGKILL) and started again; times count from the kill.

    Rates are answers a second of all servers: before the kill, until the server takes requests again, and after that.
    The kernel accepts connections for a killed process until it has closed its port (``dying_s``); requests sent until
    then count as in flight. ``lost_later`` are those of ``lost`` that were sent after that.
    """

    server: Text = Field(description="address of the killed server")
    concurrency: Annotated[int, Field(ge=1, description="concurrent requests of all servers")]
    in_flight: Annotated[int, Field(ge=0, description="at that server when it was killed, as the front saw it")]
    answered: Annotated[int, Field(ge=0, description="requests answered from the kill to the end")]
    lost: Annotated[int, Field(ge=0, description="requests that failed")]
    lost_later: Annotated[int, Field(ge=0, description="those of lost that were sent after dying_s")]
    said: str = Field(default="", description="the first loss's answer or error")
    dying_s: Annotated[float, Field(ge=0, description="until its port was closed")]
    restarted_s: Annotated[float, Field(ge=0, description="when it was started again")]
    back_s: Annotated[float, Field(ge=0, description="when it got a request again; 0: never")]
    rps_before: Annotated[float, Field(ge=0, description="answers/s before the kill")]
    rps_down: Annotated[float, Field(ge=0, description="answers/s while the server was down")]
    rps_after: Annotated[float, Field(ge=0, description="answers/s after it was back")]


class Readback(Record):
    """One effective setting: what the artefact asks for and what the engine's log says. Empty: not told."""

    name: Id = Field(description="name of the setting")
    asked: str = Field(description="value in the artefact")
    found: str = Field(description="value in the engine's log")


class SmokeRun(Record):
    """One run of ``recommend smoke``, which alone writes these. Raw: medians and verdicts are computed from it.

    ``request`` remakes the artefact. ``artefact_sha256`` is over its bytes as launched, ``launch_sha256``
    over what it runs (environment and command), which reasons and predictions in its comments do not change.
    Memory is the driver's figure for the fullest card as a whole, the idle card included.
    """

    id: Id = Field(description="name of the file")
    taken: Date = Field(description="day of the run")
    made_by: Text = Field(description="program and version that wrote the artefact")
    lmdeploy: Version = Field(description="LMDeploy release")
    gpu: Id = Field(description="id of the GPU")
    gpu_name: Text = Field(description="name that the driver reports")
    gpu_count: Annotated[int, Field(ge=1, description="GPUs of the host")] = 1
    driver: Text = Field(description="version of the driver")
    memory_mib: Annotated[int, Field(ge=1, description="memory of a card in MiB")]
    cpus: Annotated[int, Field(ge=1, description="CPU cores of the host")]
    cpu_name: str = Field(description="name of the CPU")
    model: Id = Field(description="id of the model")
    checkpoint: Text = Field(description="what the weights were")
    request: Text = Field(description="JSON on one line, as in the artefact's head")
    kind: Literal["bash", "python", "compose", "systemd"] = Field(description="format of the artefact")
    artefact_sha256: Digest = Field(description="digest of the artefact")
    launch_sha256: Digest = Field(description="digest of environment and command")
    environment: tuple[Text, ...] = Field(default=(), description="environment variables of the server")
    command: tuple[Text, ...] = Field(default=(), description="words of the command line")
    set_by_smoke: tuple[Text, ...] = Field(description="variables that smoke set to run it here")
    copies: Annotated[int, Field(ge=1, description="how often the artefact was started on its card")] = 1
    mps: bool = Field(default=False, description="under CUDA MPS")
    pinned: str = Field(default="", pattern=CORES, description="CPU cores of all servers; empty: every one of the host")
    servers: Annotated[int, Field(ge=0, description="servers of the artefact; 0: this was not kept")] = 0
    share: Annotated[int, Field(ge=1, description="of these, on the same card")] = 1
    max_tiles: Annotated[int, Field(ge=0, description="most tiles of an image asked for; 0: no limit")] = 0
    startup_s: Annotated[float, Field(ge=0, description="launch until /v1/models answered; the last copy's")]
    idle_mib: Annotated[int, Field(ge=0, description="memory of the idle card in MiB")]
    start_peak_mib: Annotated[int, Field(ge=0, description="most memory during the start in MiB")]
    ready_mib: Annotated[int, Field(ge=0, description="memory when ready in MiB")]
    effective: tuple[Readback, ...] = Field(description="settings as the engine's log shows them")
    checks: tuple[Text, ...] = Field(description="what was proved before the load")
    outcome: Id = Field(description="ok, or the failure's name")
    said: str = Field(default="", description="what failed; empty: nothing")
    notes: tuple[Text, ...] = Field(default=(), description="what the person who ran it adds")
    judges: bool = Field(default=False, description="kept out of fits, to judge predictions by")
    log_sha256: Digest = Field(description="digest of the server's log")
    phases: tuple[Phase, ...] = Field(description="loads that were measured")
    killed: tuple[Killed, ...] = Field(default=(), description="servers that were killed under load")

    @property
    def random_weights(self) -> bool:
        """Whether smoke made up the weights, so that the output is meaningless."""
        return self.checkpoint.startswith("random")

    @property
    def engine(self) -> str:
        """The engine that the artefact asks for: the one that ran, or the run failed."""
        return next((each.asked for each in self.effective if each.name == "backend"), "turbomind")

    @property
    def cores(self) -> int:
        """CPU cores that the servers may use."""
        return len(cores(self.pinned)) or self.cpus
