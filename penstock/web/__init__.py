"""What the adapter and the page are served by: one HTTP server with its bounds, and who may ask for what."""
