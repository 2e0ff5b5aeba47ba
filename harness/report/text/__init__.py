"""Results, runs and plans as text for a terminal and as JSON for scripts."""
