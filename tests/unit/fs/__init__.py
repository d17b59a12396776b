"""File systems of fsspec, right and wrong ones."""
