"""`python -m shared report`: write the workshop page."""
