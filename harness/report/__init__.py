"""Tables, summaries, progress and the page, for people."""
