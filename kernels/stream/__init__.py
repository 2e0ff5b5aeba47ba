"""Stream: a message that is added to what another process holds."""
