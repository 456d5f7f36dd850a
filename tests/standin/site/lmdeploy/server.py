"""Stand-in for the HTTP server: the end points, the answers' shapes and the log lines of 0.18.0."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lmdeploy.engine import ARGUMENT, FAULT, SERIES, Engine, Refused

UNAUTHORIZED = Refused(401, "Unauthorized.", "authentication_error")
API_TIMEOUT = {"error_code": 10402, "text": "Failed to get response after a period of time"}


def uvicorn(text: str) -> None:
    """A line of the web server's own log."""
    print(f"INFO:     {text}", file=sys.stderr, flush=True)


class Http(ThreadingHTTPServer):
    """A listening socket, its threads and what they share."""

    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A traceback, but not for a client that went away."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def run(self, unhurried: Any) -> None:
        """Serves until SIGTERM or SIGINT; then waits, as uvicorn does, until ``unhurried()`` or a second signal."""
        asked: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN if FAULT == "stubborn" else lambda got, _: asked.append(got))
        uvicorn(f"Uvicorn running on http://{self.server_name}:{self.server_port} (Press CTRL+C to quit)")
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        while not asked:
            time.sleep(0.02)
        uvicorn("Shutting down")
        self.shutdown()
        self.server_close()
        while not unhurried() and len(asked) < 2:
            time.sleep(0.02)
        uvicorn("Waiting for application shutdown.")
        uvicorn("Application shutdown complete.")
        uvicorn(f"Finished server process [{os.getpid()}]")
        if asked[0] == signal.SIGTERM:  # uvicorn raises the signal again once it is done
            sys.stdout.flush()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


def listen(name: str, port: int, handler: type[BaseHTTPRequestHandler]) -> Http:
    """Binds; says what uvicorn says where the port is taken, and exits 1."""
    uvicorn(f"Started server process [{os.getpid()}]")
    uvicorn("Waiting for application startup.")
    uvicorn("Application startup complete.")
    try:
        made = Http((name, port), handler, bind_and_activate=False)
        made.allow_reuse_address = True
        made.server_bind()
        made.server_activate()
    except OSError:
        said = f"[Errno 98] error while attempting to bind on address ('{name}', {port}): address already in use"
        print(f"ERROR:    {said}", file=sys.stderr, flush=True)
        uvicorn("Waiting for application shutdown.")
        uvicorn("Application shutdown complete.")
        sys.exit(1)
    made.server_name = name
    return made


class Handler(BaseHTTPRequestHandler):
    """What the server and the proxy have in common."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    keys: tuple[str, ...] = ()

    def log_message(self, *_: object) -> None:
        """The access line is written by ``send``."""

    def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """One whole answer."""
        self.head(status, kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def head(self, status: int, kind: str) -> None:
        """The first lines of an answer, and its line in the log."""
        shown = f"{self.client_address[0]}:{self.client_address[1]}"
        reason = self.responses[status][0]
        print(f'INFO:     {shown} - "{self.command} {self.path} HTTP/1.1" {status} {reason}', flush=True)
        self.send_response_only(status)
        self.send_header("Content-Type", kind)

    def json(self, value: Any, status: int = 200) -> None:
        """An answer in JSON."""
        self.send(status, json.dumps(value).encode())

    def chunk(self, data: bytes) -> None:
        """A part of an answer sent bit by bit; an empty one ends it."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def start_stream(self) -> None:
        """Begins such an answer."""
        self.head(200, "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def body(self) -> bytes:
        """The request's body."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def locked(self) -> bool:
        """Whether a key is asked for that was not given; answers 401 then."""
        if not self.keys or self.path.startswith(("/health", "/docs", "/redoc", "/nodes")):
            return False
        if self.headers.get("Authorization", "").removeprefix("Bearer ") in self.keys:
            return False
        self.body()
        self.json(UNAUTHORIZED.body, 401)
        return True

    def models(self, names: list[str]) -> None:
        """The list of models."""
        same = {"object": "model", "created": int(time.time()), "owned_by": "lmdeploy", "parent": None}
        self.json({"object": "list", "data": [same | {"id": name, "root": name, "permission": []} for name in names]})

    def no_model(self, name: str) -> None:
        """The answer for a model that is not there."""
        self.json(Refused(404, f"The model {name!r} does not exist.", "not_found_error").body, 404)


class Api(Handler):
    """The api_server's end points."""

    engine: Engine
    metrics = True

    def do_GET(self) -> None:
        """Health, models and metrics."""
        if self.locked():
            return
        if self.path == "/health":
            self.json({"status": "healthy", "message": "TurboMind engine is healthy."})
        elif self.path == "/v1/models":
            self.models([self.engine.name])
        elif self.path.startswith("/metrics") and self.metrics:
            self.send(200, metrics(self.engine).encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self.json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        """A chat completion."""
        if self.locked():
            return None
        asked = json.loads(self.body())
        if self.path != "/v1/chat/completions":
            return self.json({"detail": "Not Found"}, 404)
        if asked["model"] != self.engine.name:
            return self.no_model(asked["model"])
        if FAULT == "error-200" and self.engine.seen >= int(ARGUMENT or 0):
            return self.json(API_TIMEOUT)
        try:
            reply = self.engine.prepare(asked)
        except Refused as error:
            return self.json(error.body, error.status)
        if reply.hangs:
            return self.hang()
        head = {"id": f"chatcmpl-{id(reply):x}", "created": int(time.time()), "model": self.engine.name}
        used = {"prompt_tokens": reply.prompt, "total_tokens": reply.prompt + len(reply.text),
                "completion_tokens": len(reply.text), "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip
        if asked.get("stream"):
            return self.stream(head, reply, used if (asked.get("stream_options") or {}).get("include_usage") else None)
        message = {"role": "assistant", "content": "".join(self.engine.tokens(reply)), "tool_calls": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
        return self.json(head | {"object": "chat.completion", "choices": [choice], "usage": used})

    def hang(self) -> None:
        """Says nothing until the client gives up; the server's end waits for that."""
        with self.engine.lock:
            self.engine.running += 1
        while self.connection.recv(1, socket.MSG_PEEK):
            time.sleep(0.05)
        with self.engine.lock:
            self.engine.running -= 1
        self.close_connection = True

    def stream(self, head: dict[str, Any], reply: Any, used: dict[str, Any] | None) -> None:
        """Token by token as server-sent events."""
        head |= {"object": "chat.completion.chunk"}
        self.start_stream()
        for token in self.engine.tokens(reply):
            self.event(head | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": token}}]})
        last = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": reply.finish}
        self.event(head | {"choices": [last]})
        if used:
            self.event(head | {"choices": [], "usage": used})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, value: dict[str, Any]) -> None:
        """One event."""
        self.chunk(b"data: %s\n\n" % json.dumps(value).encode())


def metrics(engine: Engine) -> str:
    """Prometheus text. The real one renews its gauges every 10 s; these are of the moment."""
    c = engine.config
    used = min(engine.running * 512 / (getattr(engine, "blocks", 1) * c.cache_block_seq_len), 1)
    gauges = {"num_requests_succeeded": engine.done, "num_requests_failed": engine.failed,
              "num_api_requests_routed": engine.running, "num_api_requests_waiting": engine.waiting,
              "num_requests_running": engine.running, "num_requests_waiting": 0, "gpu_cache_usage_perc": used,
              "prefix_cache_hit_rate": 0}  # fmt: skip
    counters = {"prompt_tokens_total": engine.prompt_tokens, "generation_tokens_total": engine.output_tokens}
    lines = []
    for kind, values in (("gauge", gauges), ("counter", counters)):
        for name, value in values.items():
            label = f'{{engine="0",model_name="{engine.name}"}}'
            lines += [f"# HELP lmdeploy:{name} {name}.", f"# TYPE lmdeploy:{name} {kind}"]
            lines.append(f"lmdeploy:{name}{label} {float(value)}")
    return "\n".join(lines) + "\n"


def register(proxy: str | None, url: str, engine: Engine) -> None:
    """Tells the proxy of this server: once, at start."""
    if not proxy:
        return
    body = json.dumps({"url": url, "status": {"models": [engine.name], "role": 1}}).encode()
    try:
        request = urllib.request.Request(f"{proxy}/nodes/add", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request).read()
    except OSError as error:
        engine.say("ERROR", "api_server.py:141", f"Service registration failed: {error}")


def serve(args: Any, config: Any) -> None:
    """Starts the engine, then listens."""
    name, port = args.server_name, args.server_port or 23333
    served = args.model_name or args.model_path
    trusted = getattr(args, "trust_remote_code", True)
    engine = Engine(args.model_path, config, served, log_level=args.log_level.upper(), trust_remote_code=trusted)
    engine.start()
    for _ in range(3):
        url = f"\033[93m\033[1mhttp://{name}:{port}\033[0m"
        print(f"HINT:    Please open {url} in a browser for detailed api usage!!!", flush=True)
    Api.engine, Api.keys = engine, tuple(args.api_keys or ())
    Api.metrics = not args.disable_metrics if hasattr(args, "disable_metrics") else SERIES >= (0, 11)
    register(args.proxy_url, f"http://{name}:{port}", engine)
    made = listen(name, port, Api)
    if FAULT == "forks" and os.fork() == 0:
        os.setsid()
        time.sleep(60)  # holds the listening socket
        os._exit(0)
    made.run(lambda: not engine.running)
    engine.leave()
