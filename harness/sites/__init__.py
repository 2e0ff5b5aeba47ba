"""The profiles of clusters, read and resolved."""
