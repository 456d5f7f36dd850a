"""Check a server's answers before any load: health, models, text, image, JSON."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.client.completion import END, BadCompletion, read_completion
from recommender.smoke.failures import Failure

if TYPE_CHECKING:
    from recommender.request.resolved_request import ResolvedRequest

TIMEOUT_S = 60.0
# Ask loopback directly, whatever proxy the environment names.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SCHEMA = '{"type":"object","properties":{"answer":{"type":"boolean"}},"required":["answer"]}'


class Server:
    """One server, or the proxy in front of several, at a base URL."""

    def __init__(self, url: str, api_key: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, bytes]:
        """Return status and body; raise OSError if nothing answers."""
        return self._ask(urllib.request.Request(self.url + path, headers=self._headers), timeout_s)

    def _ask(self, request: urllib.request.Request, timeout_s: float) -> tuple[int, bytes]:
        try:
            try:
                with DIRECT.open(request, timeout=timeout_s) as reply:
                    return reply.status, reply.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"no HTTP from {self.url}: {error!r}") from None

    def model(self) -> str:
        """Return the first model of /v1/models, or an empty text."""
        try:
            status, body = self.get("/v1/models")
            listed = json.loads(body)["data"] if status == 200 else []
            return str(listed[0]["id"]) if listed else ""
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return ""

    def healthy(self) -> bool:
        """Return whether /health answers 200."""
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def chat(self, body: Mapping[str, Any], request_name: str) -> tuple[str, str]:
        """Return the answer's text and finish reason; raise Failure with the cause."""
        request = urllib.request.Request(
            self.url + "/v1/chat/completions", json.dumps(body).encode(), headers=self._headers
        )
        try:
            status, raw = self._ask(request, self.timeout_s)
            answer = read_completion(status, [raw, END])
        except BadCompletion as trouble:
            raise Failure(trouble.cause, f"{request_name}: {trouble.message}") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self._silent(request_name) from None
            raise Failure("server-died", f"{request_name}: the connection broke: {reason}") from None
        return answer.text, answer.ended

    def _silent(self, request_name: str) -> Failure:
        state = "/health answers 200 meanwhile" if self.healthy() else "/health does not answer either"
        return Failure("requests-hang", f"{request_name}: no answer within {self.timeout_s:g} s; {state}")


def check_server(
    front: Server,
    backends: list[Server],
    model: str,
    resolved: ResolvedRequest,
    picture: str,
    max_tiles: int,
    structured: bool,
    random: bool,
) -> Iterator[str]:
    """Run the checks in order and yield what each proved; raise Failure at the first error.

    ``random``: the weights are, and an answer by a schema need not end.
    """
    for backend in backends:
        status, body = backend.get("/health")
        if status != 200:
            raise Failure("request-failed", f"/health: HTTP {status}: {body[:300].decode(errors='replace')}")
    yield "/health answers 200"
    yield "/v1/models lists the model"
    text, _ = front.chat(chat_body(model, resolved.request.prompt or "Say one word."), "a text request")
    yield f"a text request is answered ({len(text)} characters)"
    if picture:
        text, _ = front.chat(chat_body(model, resolved.prompt, _jpeg(picture), max_tiles), "an image request")
        yield f"an image request is answered ({len(text)} characters)"
    if structured:
        yield _check_schema(front, model, resolved, picture, max_tiles, random)
    else:
        yield "JSON by a schema is not asked for: this release refuses it"


def chat_body(
    model: str, prompt: str, image: str = "", max_tiles: int = 0, tokens: int = 16, schema: object = None
) -> dict[str, Any]:
    """Return a request's body, with an image (data: URL) and a JSON schema if given."""
    content: Any = prompt
    if image:
        url: dict[str, Any] = {"url": image} | ({"max_dynamic_patch": max_tiles} if max_tiles else {})
        content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": url}]
    messages = [{"role": "user", "content": content}]
    body = {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0}
    if schema is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return body


def _jpeg(picture: str) -> str:
    return f"data:image/jpeg;base64,{picture}" if picture else ""


def _check_schema(
    server: Server, model: str, resolved: ResolvedRequest, picture: str, max_tiles: int, random: bool
) -> str:
    schema = json.loads(resolved.response_schema or SCHEMA)
    # Twice the longest answer even if a token of the workload's own is a single character.
    tokens = max(128, 2 * resolved.outputs[-1])
    body = chat_body(model, resolved.prompt, _jpeg(picture), max_tiles, tokens=tokens, schema=schema)
    text, finish = server.chat(body, "a JSON request")
    wrong = schema_error(text, schema)
    if wrong and random and finish == "length" and begins_json(text):
        # A schema allows any number of blanks between two marks, and random weights may write only blanks.
        return f"an answer by JSON schema begins as JSON does; random weights did not end it within {tokens} tokens"
    if wrong:
        raise Failure("malformed-json", f"a JSON request: {wrong}; it ended with {finish or 'nothing'}: {text[:200]!r}")
    return f"an answer by JSON schema parses: {' '.join(text.split())[:80]}"


def begins_json(text: str) -> bool:
    """Return whether a text is JSON as far as it goes, and more than blanks."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.msg.startswith("Unterminated string") or not text[error.pos :].strip()
        return cut and bool(text.strip())
    return True


def schema_error(text: str, schema: Mapping[str, Any]) -> str:
    """Return how an answer violates a flat schema (type, properties, required), or ""."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"the answer is not JSON ({error})"
    if schema.get("type") == "object" and not isinstance(value, dict):
        return "the answer is no object"
    kinds: dict[str, type | tuple[type, ...]] = {
        "boolean": bool, "string": str, "integer": int, "number": (int, float), "object": dict, "array": list,
    }  # fmt: skip
    fields = value if isinstance(value, dict) else {}
    for name in schema.get("required", ()) if isinstance(value, dict) else ():
        if name not in fields:
            return f"{name} is missing"
    for name, part in schema.get("properties", {}).items():
        wanted = part.get("type") if isinstance(part, dict) else None
        kind = kinds.get(wanted) if isinstance(wanted, str) else None
        if name in fields and kind and not isinstance(fields[name], kind):
            return f"{name} is no {wanted}"
    return ""


def intercepting_proxy() -> str:
    """Return the proxy variable that intercepts loopback requests, or an empty text.

    A small server of our own is asked as a client of this environment would ask.
    """
    proxies = urllib.request.getproxies()
    if "http" not in proxies or urllib.request.proxy_bypass("127.0.0.1"):
        return ""
    probe = http.server.HTTPServer(("127.0.0.1", 0), _ProbeHandler)
    thread = threading.Thread(target=probe.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        with urllib.request.build_opener().open(f"http://127.0.0.1:{probe.server_port}/", timeout=5) as reply:
            if reply.read(16) == _ProbeHandler.MARK:
                return ""
    except (OSError, http.client.HTTPException):
        pass
    finally:
        probe.shutdown()
        probe.server_close()
    where = urllib.parse.urlsplit(proxies["http"])
    return f"http_proxy={where.scheme}://{where.hostname or ''}{f':{where.port}' if where.port else ''}"  # no password


class _ProbeHandler(http.server.BaseHTTPRequestHandler):
    """Answer with a mark that no proxy would send."""

    MARK = b"smoke"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.MARK)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
