"""HTML pages of jobs and runs, drawings, and the server of the pages on loopback.

Pages must not load anything from other hosts. Start reading at `html_pages`.
"""
