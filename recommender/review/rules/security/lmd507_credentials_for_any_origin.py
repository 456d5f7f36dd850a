"""Credentials for every web page

## What it does
Reports `--allow-credentials` if all origins are allowed, by default or explicitly.

## Why
Together they let any page that a user opens call the server with the credentials in the user's browser, and read the
answer. The server uses no cookies, so no client needs this. A proxy with cookie logins in front of it would be open
to every page.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-credentials --allow-origins '*'

## Good
Remove `--allow-credentials`, or name the origins of your own pages:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --allow-credentials --allow-origins https://chat.acme.org
"""

from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule("allow-credentials", "warning", sources=("flags/allow-credentials", "flags/allow-origins"))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text != "true":
        return
    origins = case.effective("allow-origins")
    if origins is not None and "*" in origins.split():
        yield Diagnostic(
            setting.option.place,
            "Credentials are allowed for pages of every origin.",
            "Any page that a user opens can call the server as that user; name the origins, or remove the option.",
        )
