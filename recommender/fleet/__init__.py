"""From one GPU to a fleet: how many cards hold a rate of arrivals, and what starts them."""
