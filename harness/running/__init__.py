"""A request carried out, from the plan to the record."""
