"""Who holds the memory, and the private names of PyTorch that are needed to find out."""
