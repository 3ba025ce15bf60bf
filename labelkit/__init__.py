"""labelkit makes training data from language models: sample, verify, keep, account for the rest."""

__version__ = "0.1.0"
