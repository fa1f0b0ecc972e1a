"""Workers add to counters that two parameter servers hold; the chief waits for the sum. Told everything by arguments.

One line a request: "add N" or "get"; the answer is the counter.
"""
import argparse
import socket
import socketserver
import threading
import time

GOAL = 20                   # of all counters together
CONNECT_SECONDS = 30
LINE_BYTES = 64             # a longer request line ends its connection


def serve(address):
    total, lock = [0], threading.Lock()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in iter(lambda: self.rfile.readline(LINE_BYTES), b""):
                words = line.split()
                with lock:
                    if len(words) == 2 and words[0] == b"add":
                        total[0] += int(words[1])
                    answer = total[0]
                self.wfile.write(b"%d\n" % answer)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(address, Handler) as server:
        server.serve_forever()


def connect(address):
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(address, timeout=CONNECT_SECONDS).makefile("rw")
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def ask(connection, text):
    connection.write(text + "\n")
    connection.flush()
    return int(connection.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ps_hosts", required=True, help="HOST:PORT,...")
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--worker_count", type=int, default=1)
    arguments = parser.parse_args()
    servers = [(host, int(port)) for host, port in (entry.rsplit(":", 1) for entry in arguments.ps_hosts.split(","))]
    if arguments.job_name == "ps":
        serve(servers[arguments.task_index])
        return
    connections = [connect(server) for server in servers]
    while sum(ask(connection, "get") for connection in connections) < GOAL:
        if arguments.job_name == "worker":
            ask(connections[arguments.task_index % len(connections)], "add 1")
        time.sleep(0.1 / arguments.worker_count)
    print("%s %d: the sum reached %d" % (arguments.job_name, arguments.task_index, GOAL))


if __name__ == "__main__":
    main()
