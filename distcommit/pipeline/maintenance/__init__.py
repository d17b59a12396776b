"""Work units of maintenance: error files are reprocessed, published files expire.

Must not delete files: the run after does. Start reading at `reprocess`.
"""
