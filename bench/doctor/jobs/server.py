"""A slow server, as a separate process."""

import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Late(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    delay = 0.0

    def do_GET(self):
        time.sleep(self.delay)
        body = b"x" * 4096
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def start(delay):
    """The address of a server that ends with this process."""
    child = subprocess.Popen(
        [sys.executable, __file__, str(delay)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return f"http://127.0.0.1:{child.stdout.readline().strip()}/"


if __name__ == "__main__":
    import os
    import threading

    Late.delay = float(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Late)
    print(server.server_port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()
