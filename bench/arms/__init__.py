"""One module per loader. Each opens a stream of (images, record numbers) and passes it to harness.main."""
