"""Pages of runs: HTML, drawings, and the server that serves them on loopback.

Pages must not load anything from other hosts. Start reading at `html_pages`.
"""
