"""Proves a server's answers before any load: health, models, a text, a picture, JSON by a schema."""

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

from recommender.smoke.completion import END, Trouble, read
from recommender.smoke.failures import Failure

if TYPE_CHECKING:
    from recommender.facts import Facts

TIMEOUT_S = 60.0
# Loopback is asked directly, whatever the environment says of proxies.
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
        """Status and body. Raises OSError where nothing answers."""
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
        """The first model that /v1/models lists; empty while it lists none."""
        try:
            status, body = self.get("/v1/models")
            listed = json.loads(body)["data"] if status == 200 else []
            return str(listed[0]["id"]) if listed else ""
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return ""

    def healthy(self) -> bool:
        """Whether /health answers 200."""
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def chat(self, body: Mapping[str, Any], what: str) -> tuple[str, str]:
        """Text of the answer and why it ended. Raises Failure with the cause."""
        request = urllib.request.Request(
            self.url + "/v1/chat/completions", json.dumps(body).encode(), headers=self._headers
        )
        try:
            status, raw = self._ask(request, self.timeout_s)
            answer = read(status, [raw, END])
        except Trouble as trouble:
            raise Failure(trouble.cause, f"{what}: {trouble.said}") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self._silent(what) from None
            raise Failure("server-died", f"{what}: the connection broke: {reason}") from None
        return answer.text, answer.ended

    def _silent(self, what: str) -> Failure:
        state = "/health says 200 meanwhile" if self.healthy() else "/health does not answer either"
        return Failure("requests-hang", f"{what}: no answer within {self.timeout_s:g} s; {state}")


def proofs(
    front: Server, backends: list[Server], model: str, facts: Facts, picture: str, max_tiles: int, structured: bool
) -> Iterator[str]:
    """Runs the checks one after another; each line says what was proved. Raises Failure at the first that fails."""
    for each in backends:
        status, body = each.get("/health")
        if status != 200:
            raise Failure("request-failed", f"/health: HTTP {status}: {body[:300].decode(errors='replace')}")
    yield "/health answers 200"
    yield "/v1/models lists the model"
    text, _ = front.chat(question(model, "Say one word."), "a text request")
    yield f"a text request is answered ({len(text)} characters)"
    if picture:
        text, _ = front.chat(question(model, facts.prompt, _jpeg(picture), max_tiles), "an image request")
        yield f"an image request is answered ({len(text)} characters)"
    if structured:
        yield _structured(front, model, facts, picture, max_tiles)
    else:
        yield "JSON by a schema is not asked for: this release refuses it"


def question(
    model: str, prompt: str, image: str = "", max_tiles: int = 0, tokens: int = 16, schema: object = None
) -> dict[str, Any]:
    """The body of a request, with an image (a data: URL) and held to a JSON schema where there are such."""
    content: Any = prompt
    if image:
        url: dict[str, Any] = {"url": image} | ({"max_dynamic_patch": max_tiles} if max_tiles else {})
        content = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": url}]
    messages = [{"role": "user", "content": content}]
    made = {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0}
    if schema is not None:
        made["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return made


def _jpeg(picture: str) -> str:
    """The address of a picture in base64; empty for none."""
    return f"data:image/jpeg;base64,{picture}" if picture else ""


def _structured(server: Server, model: str, facts: Facts, picture: str, max_tiles: int) -> str:
    schema = json.loads(facts.response_schema or SCHEMA)
    # Twice what the answer can take even where a token is a single character.
    body = question(model, facts.prompt, _jpeg(picture), max_tiles, tokens=128, schema=schema)
    text, ended = server.chat(body, "a JSON request")
    wrong = nonconformity(text, schema)
    if wrong:
        raise Failure("malformed-json", f"a JSON request: {wrong}; it ended with {ended or 'nothing'}: {text[:200]!r}")
    return f"an answer by JSON schema parses: {' '.join(text.split())[:80]}"


def nonconformity(text: str, schema: Mapping[str, Any]) -> str:
    """What is wrong with an answer by a flat schema (type, properties, required); empty where nothing is."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"the answer is not JSON ({error})"
    if schema.get("type") == "object" and not isinstance(value, dict):
        return "the answer is no object"
    kinds: dict[str, type | tuple[type, ...]] = {
        "boolean": bool, "string": str, "integer": int, "number": (int, float), "object": dict, "array": list,
    }  # fmt: skip
    for name in schema.get("required", ()):
        if name not in value:
            return f"{name} is missing"
    for name, part in schema.get("properties", {}).items():
        kind = kinds.get(part.get("type", ""))
        if name in value and kind and not isinstance(value[name], kind):
            return f"{name} is no {part['type']}"
    return ""


def environment_proxy() -> str:
    """The proxy variable that keeps a client of this environment from loopback; empty where none does.

    A small server of our own is asked the way a client would ask.
    """
    proxies = urllib.request.getproxies()
    if "http" not in proxies or urllib.request.proxy_bypass("127.0.0.1"):
        return ""
    own = http.server.HTTPServer(("127.0.0.1", 0), _Own)
    thread = threading.Thread(target=own.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        with urllib.request.build_opener().open(f"http://127.0.0.1:{own.server_port}/", timeout=5) as reply:
            if reply.read(16) == _Own.MARK:
                return ""
    except (OSError, http.client.HTTPException):
        pass
    finally:
        own.shutdown()
        own.server_close()
    where = urllib.parse.urlsplit(proxies["http"])
    return f"http_proxy={where.scheme}://{where.hostname or ''}{f':{where.port}' if where.port else ''}"  # no password


class _Own(http.server.BaseHTTPRequestHandler):
    """Answers with a mark that no proxy would."""

    MARK = b"smoke"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.MARK)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
