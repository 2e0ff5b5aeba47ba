"""What was measured, as it is written and verified."""
