"""The web console: its page, log-in and sessions. Everything else it does goes through the JSON API."""
