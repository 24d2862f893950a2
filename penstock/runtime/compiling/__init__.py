"""Compiles keyless functions anew from their source: the same Python, with emissions and formats of times that cost less."""
