"""The report's charts, as plain plotly figures, each with the table that says the same."""
