"""Measurement of tensor memory by category, and the private names of PyTorch that it needs."""
