"""Review launch scripts: find what is wrong, cite the source, offer a repair."""
