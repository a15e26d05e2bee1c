"""Audio on its way in: bodies, assets, and the sources that tracks are analysed from."""
