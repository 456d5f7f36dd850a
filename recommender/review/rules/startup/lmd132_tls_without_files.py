"""TLS without its files

## What it does
Reports `--ssl` in a compose service or a pod of LMDeploy's own image that gets no SSL_KEYFILE or no SSL_CERTFILE.

## Why
The server reads the paths of its key and its certificate from these two variables alone. Without one of them it stops
with a KeyError. Nothing is reported where an environment file or an image of one's own may set them.

## Bad

    services:
      server:
        image: openmmlab/lmdeploy:v0.18.0-cu12.8
        command: lmdeploy serve api_server Qwen/Qwen3-8B --ssl

## Good
Mount the files and name both:

    services:
      server:
        image: openmmlab/lmdeploy:v0.18.0-cu12.8
        volumes: ["./certs:/certs:ro"]
        environment: {SSL_KEYFILE: /certs/key.pem, SSL_CERTFILE: /certs/cert.pem}
        command: lmdeploy serve api_server Qwen/Qwen3-8B --ssl
"""

from recommender.common.pattern import pattern
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Script

FILES = ("SSL_KEYFILE", "SSL_CERTFILE")
OWN_IMAGE = pattern(r"(?:[\w.:-]+/)?openmmlab/lmdeploy(?:[:@].*)?")
WRITTEN_ELSEWHERE = pattern(r"\bextends:|<<:|\{\{")
"""In a manifest whose services or pods may get variables that it does not show."""


@option_rule("ssl", "error", sources=("flags/ssl",))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    container, image = case.launch.container, None
    if container is not None and container.image is not None:
        image = container.image.value
    if image is None or not OWN_IMAGE.fullmatch(image) or not checks.server(case) or setting.text != "true":
        return
    # A name without a value passes on the caller's.
    lacking = [name for name in FILES if name not in case.launch.environment and name not in case.script.text]
    if lacking and _shows_all(case.script):
        listed = " and ".join(lacking)
        message = f"{setting.option.name} needs {listed}, which the container does not get."
        yield Diagnostic(setting.option.place, message, "The server stops with a KeyError before it listens.")


def _shows_all(script: Script) -> bool:
    """Return whether a manifest shows all variables of its containers."""
    if script.kind not in ("compose", "kubernetes") or surroundings.sets_elsewhere(script):
        return False
    return not WRITTEN_ELSEWHERE.search(script.text)
