"""Records of what was measured and predicted, and how they are shown."""
