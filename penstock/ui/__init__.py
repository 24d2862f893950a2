"""The web page on runs, live and past: measurements beside predictions, and advice."""
