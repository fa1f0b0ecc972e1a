"""A registry of images on this host, with one image, as docker and podman speak to it."""
import http.server
import os
import threading

import harness


class Registry(http.server.ThreadingHTTPServer):
    """Serves one image as registries do, once `open` is set."""

    def __init__(self, directory):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.server.asked += 1
                self.server.open.wait(harness.PATIENCE)
                kind, name = self.path.rstrip("/").split("/")[-2:]
                path = os.path.join(directory, "manifest.json" if kind == "manifests" else name.replace("sha256:", ""))
                if not kind:
                    self.answer(200, b"{}", "application/json")
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
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else body)

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        self.open, self.asked = threading.Event(), 0
        threading.Thread(target=self.serve_forever, daemon=True).start()
