"""The demo: a real job on an embedded Kafka broker, killed in the middle of its commit, resumed, and counted. Must not
be needed by any job, nor count by the product's own code alone. Start reading at `story`."""
