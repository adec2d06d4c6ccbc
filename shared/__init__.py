"""What all scripts share: measuring, predicting, and what the stages import.

README.md in this folder describes the folders. What is particular to one stage is never in here.
"""
