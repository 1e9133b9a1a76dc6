"""Messages as JSON: limits before they are validated, and encoding off the event loop."""
