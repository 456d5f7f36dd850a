"""``python -m recommender``: the same as the ``recommend`` command."""

from recommender.cli import main

main()
