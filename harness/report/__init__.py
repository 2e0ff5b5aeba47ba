"""What people see: tables, summaries and progress."""
