"""How the ranks of test scripts meet without PyTorch, as env:// does: rank 0 listens at MASTER_ADDR:MASTER_PORT, the others connect, and in
every step each tells rank 0 its number and waits until all have. A script begins with MEET, and calls meet() and step()."""
import textwrap

MEET = textwrap.dedent("""
    import os, socket, sys, time
    rank, world, generation = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "DTRAIN_GENERATION"))
    links = []
    def meet():
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            door = socket.create_server(address, backlog=world)
            links.extend(door.accept()[0] for _ in range(world - 1))
        while rank and not links:
            try: links.append(socket.create_connection(address))
            except ConnectionRefusedError: time.sleep(0.01)
    def lost():
        print("rank %d lost a peer" % rank, file=sys.stderr, flush=True)
        time.sleep(2)   # as a collective that fails is slower to end its rank than the kernel is to end the one that died
        sys.exit(1)
    def wait(link):
        try: heard = link.recv(1)
        except ConnectionError: heard = b""
        if not heard: lost()
    def tell(link):
        try: link.send(b"s")
        except ConnectionError: lost()
    def step():
        if rank: tell(links[0])
        for link in links: wait(link)
        if not rank:
            for link in links: tell(link)
    """)
