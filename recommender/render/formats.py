"""Render a recommendation in a named format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.common.text import shorten
from recommender.render import container_image, seal
from recommender.render.command_line import command_line
from recommender.render.template import COMMENTS, TEMPLATES, context, environment

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation


FORMS = (*TEMPLATES, "command", "json", "report")


def render(recommendation: Recommendation, form: str, comments: str = COMMENTS[0]) -> str:
    """Return an artefact: ``bash``, ``command``, ``python``, ``client``, ``env``, ``docker``, ``json`` or ``report``.

    ``comments``: those of ``bash``. Raises RequestError for another form, and if an environment file, one command line
    or one container cannot hold the recommendation.
    """
    for what, name, known in (("form", form, FORMS), ("comments", comments, COMMENTS)):
        if name not in known:
            raise RequestError(f"{what} {shorten(str(name))}: use one of {', '.join(known)}")
    if form == "json":
        from recommender.render.json_output import to_json

        return to_json(recommendation)
    if form == "report":
        from recommender.render.report import report

        return report(recommendation)
    if form in ("docker", "command"):
        container_image.one_server(recommendation, form)
    if form == "command":
        return command_line(recommendation)
    bare = comments == "none" and form == "bash"
    text = environment(bare).get_template(TEMPLATES[form]).render(context(recommendation, comments))
    return seal.add_seal(text, form)
