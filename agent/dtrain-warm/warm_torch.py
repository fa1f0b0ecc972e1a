"""What a start without imports would cost with torch: the ranks of a gang reach the store of rank 0 before rank 0 listens. PyTorch's client
is refused then, and sleeps a second before it tries again."""
import datetime
import functools
import socket
import sys
import time

PAUSE = 0.005               # seconds between two looks whether rank 0 listens
LOOK = 1.0                  # seconds that one look may take: of a host that does not answer
USUAL_PATIENCE = 300        # seconds, where torch's own is not known


def listens(host, port):
    try:
        socket.create_connection((host, port), LOOK).close()
        return True
    except OSError:
        return False


def wait_for_stores():
    """Lets the store's clients begin once its server listens. Whatever else may be wrong is torch's to find, as ever."""
    rendezvous = sys.modules.get("torch.distributed.rendezvous")
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return

    @functools.wraps(create)
    def create_when_it_listens(hostname, port, rank, *arguments, **named):
        patience = next((value for value in (*arguments, *named.values()) if isinstance(value, datetime.timedelta)), None)
        until = time.monotonic() + (patience.total_seconds() if patience else USUAL_PATIENCE)
        while rank != 0 and time.monotonic() < until and not listens(hostname, port):
            time.sleep(PAUSE)
        return create(hostname, port, rank, *arguments, **named)

    rendezvous._create_c10d_store = create_when_it_listens
