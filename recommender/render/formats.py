"""Render a recommendation in a named format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.render import container_image, seal
from recommender.render.template import TEMPLATES, context, environment

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation


def render(recommendation: Recommendation, form: str) -> str:
    """Return an artefact: ``bash``, ``python``, ``client``, ``env``, ``docker``, ``json`` or ``report``.

    Raises RequestError if an environment file or one container cannot hold the recommendation.
    """
    if form == "json":
        from recommender.render.json_output import to_json

        return to_json(recommendation)
    if form == "report":
        from recommender.render.report import report

        return report(recommendation)
    if form == "docker":
        container_image.one_server(recommendation)
    text = environment().get_template(TEMPLATES[form]).render(context(recommendation))
    return seal.add_seal(text, form)
