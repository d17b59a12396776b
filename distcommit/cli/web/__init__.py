"""Pages of runs: HTML, drawings, and the server that shows them on loopback.

Must not load anything from elsewhere. Start reading at `report_page`.
"""
