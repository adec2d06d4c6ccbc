"""`python -m shared.predict`: the GPU memory that scripts need, simulated without a GPU."""
