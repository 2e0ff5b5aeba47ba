"""The report: one HTML page of figures and tables, and its figures as files."""
