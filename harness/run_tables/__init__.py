"""Tables over many runs: what they are, how one run becomes rows of them, and where they are kept."""
