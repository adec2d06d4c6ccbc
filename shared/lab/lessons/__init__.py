"""`python -m shared lessons`: write the generated parts of the pages."""
