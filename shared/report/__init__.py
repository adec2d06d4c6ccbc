"""`python -m shared.report`: writes the workshop page."""
