"""Stand-in for the proxy: forwards to registered servers, and tells of its failures inside HTTP 200."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from typing import Any
from urllib.parse import urlsplit

from lmdeploy.server import API_TIMEOUT, Handler, listen

NODES: dict[str, dict[str, Any]] = {}
LOCK = threading.Lock()


class Front(Handler):
    """The proxy's end points."""

    def do_GET(self) -> None:
        """Models and nodes."""
        if self.locked():
            return
        if self.path == "/v1/models":
            self.models([name for status in NODES.values() for name in status["models"]])
        elif self.path == "/nodes/status":
            self.json(NODES)
        else:
            self.json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        """Nodes come and go; chat is forwarded."""
        if self.locked():
            return None
        body = self.body()
        asked = json.loads(body)
        if self.path == "/nodes/add":
            NODES[asked["url"]] = {"unfinished": 0} | (asked.get("status") or {"models": []})
            return self.json("Added successfully")
        if self.path == "/nodes/remove":
            NODES.pop(asked["url"], None)
            return self.json("Deleted successfully")
        fit = [url for url, status in NODES.items() if asked["model"] in status["models"]]
        if not fit:
            return self.no_model(asked["model"])
        with LOCK:
            url = min(fit, key=lambda url: NODES[url]["unfinished"])
            NODES[url]["unfinished"] += 1
        try:
            return self.forward(url, body, stream=bool(asked.get("stream")))
        finally:
            with LOCK:
                NODES[url]["unfinished"] -= 1

    def forward(self, url: str, body: bytes, *, stream: bool) -> None:
        """Passes a request on; a server's refusal comes back as HTTP 200 too, unless it was to stream."""
        node = urlsplit(url)
        link = http.client.HTTPConnection(node.hostname or "", node.port)
        begun = False
        try:
            link.request("POST", self.path, body, {"Content-Type": "application/json"} | self.passed())
            got = link.getresponse()
            if not stream:
                return self.send(200, got.read())
            if got.status != 200:
                return self.send(got.status, got.read())
            self.start_stream()
            begun = True
            for line in got:
                if line.strip():
                    self.chunk(line.rstrip(b"\n") + b"\n\n")
        except (OSError, http.client.HTTPException) as error:
            print(f"lmdeploy - ERROR - proxy.py:417 - caught an exception: {error}", file=sys.stderr, flush=True)
            if not stream:
                return self.json(API_TIMEOUT)
            if not begun:
                self.start_stream()
            self.chunk(json.dumps(API_TIMEOUT).encode() + b"\n")
        return self.chunk(b"")

    def passed(self) -> dict[str, str]:
        """The key goes along."""
        return {"Authorization": self.headers["Authorization"]} if "Authorization" in self.headers else {}


def serve(args: Any) -> None:
    """Listens until told to stop."""
    Front.keys = tuple(args.api_keys or ())
    made = listen(args.server_name, args.server_port, Front)
    made.run(lambda: not any(status["unfinished"] for status in NODES.values()))
