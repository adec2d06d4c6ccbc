"""Records of measurements and predictions: making, storing and showing them."""
