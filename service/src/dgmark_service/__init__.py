"""The service: detection over HTTP, and a page for people who do not write Python.

`app.create_app` makes it. Detection needs no model and no torch. Keys stay on the server: a request names them. The
workers import this package too, so it imports nothing by itself.
"""
