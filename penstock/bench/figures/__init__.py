"""Figures of the papers, reproduced with our models, and the plots of the command line."""
