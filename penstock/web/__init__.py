"""The HTTP server of the adapter and the page, with its resource limits and access control."""
