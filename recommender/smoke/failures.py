"""Ways a launch can fail, each with a name, an exit code and a fix."""

from dataclasses import dataclass

from recommender.common.errors import UserError

TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class FailureKind:
    """A named failure: exit code, description and fix."""

    name: str
    code: int
    description: str
    fix: str


_TABLE = (
    ("machine", 3, "this machine lacks a GPU, LMDeploy or a package", ""),
    ("port-taken", 10, "another process listens on the port", "stop it, or set SERVER_PORT or --server-port"),
    ("other-release", 11, "another LMDeploy release is installed", "install that release, or pass --lmdeploy"),
    ("model", 12, "the model folder is missing or unsupported", "name a folder whose config.json LMDeploy reads"),
    ("pytorch-fallback", 13, "LMDeploy runs PyTorch, not TurboMind", "use a model and release that TurboMind supports"),
    ("out-of-memory", 14, "out of memory at start-up", "lower the cache ratio, or free GPU memory"),
    ("out-of-memory-image", 15, "out of memory in the image encoder", "lower the cache ratio: images need memory too"),
    ("hang-at-start", 16, "the server never becomes ready", "raise the cache ratio, or lower the prefill tokens"),
    ("server-died", 17, "the server ended under load", "read the last lines of its log"),
    ("requests-hang", 18, "/health answers but requests do not", "restart it; monitor requests, not /health"),
    ("too-long", 19, "HTTP 400: the input exceeds the session length", "raise --session-len, or send smaller images"),
    ("malformed-json", 20, "the answer does not follow the JSON schema", "raise max_tokens if it was cut off"),
    ("error-in-200", 21, "an error inside an HTTP 200 body (LMDeploy's proxy)", "check whether a server died"),
    ("environment-proxy", 22, "a proxy variable intercepts loopback", "set NO_PROXY=127.0.0.1,localhost"),
    ("settings-differ", 23, "the engine did not take these settings", "check which option was lost"),
    ("start-failed", 24, "the server ended before it was ready", "read the last lines of its log"),
    ("request-failed", 25, "a request failed for another reason", "read the answer and the log"),
    ("time-limit", 26, "the run exceeded --time-limit", "raise --time-limit, or ask for less"),
    ("goals-missed", 27, "the run is sound but misses a goal", "ask recommend again with the measured figures"),
    ("cache-too-small", 28, "the KV cache has too few blocks to start", "raise the cache ratio, or free GPU memory"),
)
KINDS = {row[0]: FailureKind(*row) for row in _TABLE}


class Failure(UserError):
    """A run ended early.

    ``message`` says in one line what failed and where; ``tail`` holds the last log lines, oldest first.
    """

    def __init__(self, name: str, message: str, tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind = KINDS[name]
        self.exit_code = self.kind.code
        self.message = " ".join(message.split())
        self.tail = tail[-TAIL_LINES:]
