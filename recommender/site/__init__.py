"""The published site: pages written from the store. ``hook`` is the one module that knows mkdocs."""
