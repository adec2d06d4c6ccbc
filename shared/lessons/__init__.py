"""`python -m shared.lessons`: writes the generated parts of the pages."""
