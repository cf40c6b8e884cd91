"""What is measured of data that lies elsewhere; see __main__.py."""
