"""The audit: compares the published output with the store and the source. Must not change anything. Start reading at
`audit`."""
