"""What a run found, for people and for machines.

`data.load` reads a run from disk, finished or not, into one `ReportData`; each renderer is a module
with one function from that to text. `render.report_run` writes all of them, and the proposal.
"""
