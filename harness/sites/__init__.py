"""What is known of a cluster: its profile, read, resolved and tried."""
