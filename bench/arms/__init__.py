"""One module per loader. Each opens a stream of (images, record numbers) and gives it to harness.main."""
