"""What is known of a cluster: its profile, read and resolved."""
