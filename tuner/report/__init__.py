"""Reports of runs and checks, for people and for programs.

`data.load` reads a run from disk, finished or not, into one `ReportData`; each renderer is a module
with one function from that to text. `render.report_run` writes all reports, and the proposal.
"""
