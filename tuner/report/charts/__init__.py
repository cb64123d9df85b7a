"""The report's charts, as plain plotly figures, each with a table of the same numbers."""
