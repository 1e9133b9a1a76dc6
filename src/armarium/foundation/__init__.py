"""What every part stands on: errors, settings, identity, tool descriptions, events, telemetry."""
