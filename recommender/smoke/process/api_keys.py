"""Read API keys as every rendered script does (templates/shell/keys.j2)."""

import re
from collections.abc import Mapping

from recommender.common.user_file import Unreadable, open_regular
from recommender.smoke.failures import Failure

MOST_BYTES = 65536
KEY = re.compile(r"(?!.*[ \t]#)[!-~](?<![-#])[ -~]*")
"""A key: printable ASCII that does not begin with - or #, without anything that looks like a comment behind it."""


def read_api_keys(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of API_KEYS, else of the file API_KEYS_FILE; none if neither is set.

    Raises Failure if one is set without a usable key.
    """
    if "API_KEYS" in environment:
        source, text = "API_KEYS", environment["API_KEYS"].encode("utf-8", "surrogateescape")
    elif "API_KEYS_FILE" in environment:
        source = f"API_KEYS_FILE {environment['API_KEYS_FILE']!r}"
        try:
            with open_regular(environment["API_KEYS_FILE"]) as file:
                text = file.read(MOST_BYTES + 1)
        except (OSError, Unreadable) as error:
            raise Failure("start-failed", f"{source}: {getattr(error, 'strerror', None) or error}") from None
    else:
        return ()
    if source != "API_KEYS" and len(text) > MOST_BYTES:
        raise Failure("start-failed", f"{source} is larger than {MOST_BYTES // 1024} KiB")
    keys: list[str] = []
    # Latin-1 keeps each byte; only ASCII passes.
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n"), start=1):
        line = line.removesuffix("\r").strip(" \t")
        if line and not line.startswith("#"):
            words = re.split(r"[, \t]+", line.strip(", \t")) if source == "API_KEYS" else [line]
            if not all(KEY.fullmatch(word) for word in words if word):
                raise Failure("start-failed", f"{source}, line {number}: not a key; the script refuses it too")
            keys += filter(None, words)
    if not keys:
        raise Failure("start-failed", f"no key in {source}")
    return tuple(keys)
