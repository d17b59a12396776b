"""What people would pick instead, each started as its own documentation says, fed as the product is, killed as it is.

`peer` says what each has to answer, one module has one peer; `steady` measures them while nothing goes wrong, `struck`
while something does; `audit` counts, knowing nothing but Parquet files and the numbers that `records` has sent.
"""
