"""``recommend review``: what is wrong with a launch script, with the source of each finding, and its repair."""
