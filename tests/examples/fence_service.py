import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

documents: dict[str, tuple[int, bytes]] = {}
"""The largest fence and the text of each document. A real service keeps both in one row of its database."""

changing = threading.Lock()


class Documents(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        fence = int(self.headers["Fence"])
        # Compare, remember and write in one step: with two, another holder could slip in between.
        with changing:
            seen, _ = documents.get(self.path, (0, b""))
            stale = fence < seen
            if not stale:
                documents[self.path] = fence, text
        self.send_response(409 if stale else 204)
        self.end_headers()


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Documents)
print("ready", flush=True)
server.serve_forever()
