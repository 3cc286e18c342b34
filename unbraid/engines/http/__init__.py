"""HTTP client for engines that are servers: its address, its connections, and what they stream."""
