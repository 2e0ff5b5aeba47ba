"""Everything that is known, measured and published, as DataFrames."""
