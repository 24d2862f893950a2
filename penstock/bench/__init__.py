"""What experiments need: clusters and servers on one machine, load, and the figures of the papers."""
