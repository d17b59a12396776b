"""The audit: compares the published output with the store. Must not change anything. Start reading at `audit`."""
