"""Ways of publishing one prepared tree: bare renames, the product, and systems in common use."""
