"""Systems that compete with the product, each started as its own documentation describes, with the product's input and
kills.

`peer` has the interface, and each other module one peer. `steady` measures them undisturbed, `struck` under faults.
`audit` counts independently: it uses only Parquet files and the numbers that `records` has sent.
"""
