"""What can go wrong with a launch, each with a name, an exit code and a way to mend it."""

from __future__ import annotations

from dataclasses import dataclass

TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Kind:
    """One named failure: its exit code, what it is, and what to do about it."""

    name: str
    code: int
    what: str
    mend: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind("machine", 3, "this machine lacks a GPU, LMDeploy or a package", ""),
        Kind("port-taken", 10, "something listens on the port already", "stop it, or set SERVER_PORT to a free port"),
        Kind(
            "other-release", 11, "another LMDeploy release is installed", "install that release, or ask with --lmdeploy"
        ),
        Kind(
            "model",
            12,
            "the model folder is missing or unsupported",
            "name a folder with a config.json TurboMind reads",
        ),
        Kind("pytorch-fallback", 13, "the PyTorch engine runs, not TurboMind", "use a model and release TurboMind has"),
        Kind("out-of-memory", 14, "out of memory at start", "lower the cache ratio, or free the card"),
        Kind(
            "out-of-memory-image",
            15,
            "out of memory in the image encoder",
            "lower the cache ratio: images need room too",
        ),
        Kind("hang-at-start", 16, "the server never gets ready", "raise the cache ratio, or lower the prefill budget"),
        Kind("server-died", 17, "the server ended under load", "read the last lines of its log"),
        Kind("requests-hang", 18, "/health answers but requests do not", "restart it, and watch requests, not /health"),
        Kind(
            "too-long",
            19,
            "HTTP 400: the input does not fit the session",
            "raise --session-len, or send smaller images",
        ),
        Kind("malformed-json", 20, "the answer is not the JSON that was asked for", "raise max_tokens if it was cut"),
        Kind("error-in-200", 21, "an error inside an HTTP 200 body (LMDeploy's proxy)", "see whether a server died"),
        Kind("environment-proxy", 22, "a proxy variable catches loopback traffic", "set NO_PROXY=127.0.0.1,localhost"),
        Kind("settings-differ", 23, "the engine runs with other settings than asked", "see which option was lost"),
        Kind("start-failed", 24, "the server ended before it was ready", "read the last lines of its log"),
        Kind("request-failed", 25, "a request failed otherwise", "read the answer and the log"),
        Kind("time-limit", 26, "the run's own time limit passed", "raise --time-limit, or ask for less"),
        Kind(
            "goals-missed",
            27,
            "all is sound, but a goal of the request is missed",
            "ask recommend anew with what was measured",
        ),
    )
}


class Failure(Exception):
    """A run ended early. ``said`` is one line on what and where; ``tail`` the last log lines, oldest first."""

    def __init__(self, name: str, said: str, tail: tuple[str, ...] = ()) -> None:
        super().__init__(said)
        self.kind = KINDS[name]
        self.said = " ".join(said.split())
        self.tail = tail[-TAIL_LINES:]
