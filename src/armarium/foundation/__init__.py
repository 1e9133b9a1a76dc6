"""Shared basics below all capabilities: errors, settings, identity, tools, events, telemetry, files."""
