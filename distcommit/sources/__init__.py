"""Sources of records, one package for each source type of job files.

A source plans work units and reads them, and must not know how records are processed. Start reading at `python`, then
`kafka`.
"""
