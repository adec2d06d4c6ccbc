"""`python -m shared.predict`: how much GPU memory scripts need, simulated without a GPU."""
