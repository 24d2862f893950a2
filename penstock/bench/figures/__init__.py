"""Figures of the papers, drawn again from our own models, and the plots of the command line."""
