"""A registry of images on this host, with one image, as docker and podman speak to it: under whatever name, tag or digest it is asked for.
A name with `nosuch` is not there, one with `private` wants a password.
"""
import http.server
import os
import threading

import harness

LAYER = 64 << 10        # bytes; what is less is no layer


class Registry(http.server.ThreadingHTTPServer):
    """Serves one image as registries do, once `open` is set, and the second half of each layer once `rest` is."""

    def __init__(self, directory):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.server.asked += 1
                self.server.open.wait(harness.PATIENCE)
                kind, name = self.path.rstrip("/").split("/")[-2:]
                path = os.path.join(directory, "manifest.json" if kind == "manifests" else name.replace("sha256:", ""))
                if not kind:
                    self.answer(200, b"{}", "application/json")
                elif "private" in self.path:
                    self.answer(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}', "application/json")
                elif "nosuch" in self.path or not os.path.isfile(path):
                    self.answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}', "application/json")
                else:
                    with open(path, "rb") as file:
                        self.answer(200, file.read(), "application/vnd.oci.image.manifest.v1+json" if kind == "manifests"
                                    else "application/octet-stream")

            do_HEAD = do_GET

            def answer(self, code, body, kind):
                self.send_response(code)
                self.send_header("Content-Type", kind)
                if code == 401:
                    self.send_header("WWW-Authenticate", 'Basic realm="here"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                half = len(body) // 2 if len(body) >= LAYER else 0
                self.wfile.write(body[:half])
                self.wfile.flush()
                if half:
                    self.server.rest.wait(harness.PATIENCE)
                self.wfile.write(body[half:])

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        self.open, self.rest, self.asked = threading.Event(), threading.Event(), 0
        threading.Thread(target=self.serve_forever, daemon=True).start()
