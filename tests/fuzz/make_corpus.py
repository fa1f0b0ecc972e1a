#!/usr/bin/env python3
"""Writes the seed corpora of the fuzzers of messages, stored records and checkpoints, from the golden messages and from
small checkpoints made here. Run after a message type was added; the result is committed."""
import hashlib
import io
import pathlib
import struct
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "control"
GOLDEN_GOSSIP = HERE.parent / "golden" / "gossip"
GOLDEN_FORMATION = HERE.parent / "golden" / "formation"
GOLDEN_RAFT = HERE.parent / "golden" / "raft"
GOLDEN_RELAY = HERE.parent / "golden" / "relay"

# The order of for_each_control_type in tests/unit/wire/samples.h; fuzz_codec counts from 2.
CONTROL_TYPES = """message empty job_name node_name error_reply submit_request submit_reply jobs_request jobs_reply
tasks_reply job_description nodes_reply status_view events_request events_reply task_specs_request task_specs_reply
action_request watch_request job_update logs_request log_chunk exec_request exec_input exec_output checkpoints_request
checkpoints_reply blob_request put_blob_request blob_reply version_reply cancel_request leave_request""".split()

# The order of the types in common/wire/gossip.h; a header's type counts from 1.
GOSSIP_TYPES = """join join_reply ping pong ping_request nack probe_now gossip sync_root sync_summaries sync_rows""".split()

# The order of the bodies in common/wire/raft.h; a header's type counts from 64.
RAFT_TYPES = """vote_request vote_reply append_request append_reply snapshot_chunk snapshot_reply timeout_now fenced hello
welcome""".split()


def seed(fuzzer, name, choice, content):
    directory = HERE / "corpus" / fuzzer
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(bytes([choice]) + content)


def pack(value):
    """msgpack of what job specs are made of."""
    if isinstance(value, dict):
        assert len(value) < 16
        return bytes([0x80 | len(value)]) + b"".join(pack(k) + pack(v) for k, v in value.items())
    if isinstance(value, list):
        assert len(value) < 16
        return bytes([0x90 | len(value)]) + b"".join(map(pack, value))
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    data = value.encode()
    return (bytes([0xa0 | len(data)]) if len(data) < 32 else bytes([0xd9, len(data)])) + data


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def entries(pairs):
    return b"".join(varint(0) + varint(len(k)) + varint(len(v)) + k + v for k, v in pairs)


def table(pairs):
    """One data block."""
    restarts = struct.pack("<II", 0, 1)
    out = b""

    def block(content):
        nonlocal out
        handle = varint(len(out)) + varint(len(content) + len(restarts))
        body = content + restarts + b"\0"
        out += body + masked(body)
        return handle

    data = block(entries(pairs))
    meta = block(b"")
    index = block(entries([(b"zzz", data)]))
    return out + (meta + index).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def bundle_pairs():
    header = b"\x08\x02" + b"\x1a\x02\x08\x01"                      # two shards, version {producer 1}
    shape = b"\x12\x02\x08\x03"                                     # {3}
    plain = b"\x08\x04\x12" + varint(len(shape)) + shape + b"\x28\x03\x35" + masked(b"abc")
    other = b"\x08\x04\x12\x00\x18\x01\x20\x05\x28\x01\x35" + masked(b"x")
    sliced = b"\x08\x01\x12\x00\x3a\x02\x0a\x00"
    return [(b"", header), (b"a/b", plain), (b"a/c", other), (b"z", sliced)]


def codec():
    for number, name in enumerate(CONTROL_TYPES):
        seed("fuzz_codec", name, 2 + number, (GOLDEN / f"{name}.msgpack").read_bytes())
    message = pack({"f": 1, "t": 18, "r": 7, "l": True, "p": "payload"})
    frame = struct.pack("<I", len(message)) + message
    seed("fuzz_codec", "stream", 0, frame * 3)
    seed("fuzz_codec", "stream_half", 0, frame + frame[:9])
    seed("fuzz_codec", "stream_long", 0, struct.pack("<I", 1 << 30) + message)
    seed("fuzz_codec", "array_bomb", 1, b"\xdd\xff\xff\xff\xff")


def gossip():
    for number, name in enumerate(GOSSIP_TYPES):
        seed("fuzz_gossip", name, 1 + number, (GOLDEN_GOSSIP / f"{name}.msgpack").read_bytes())
    header = (GOLDEN_GOSSIP / "header.msgpack").read_bytes()
    seed("fuzz_gossip", "header_plain", 0, b"\x01" + header)
    seed("fuzz_gossip", "header_node_key", 0, b"\x0b" + header)
    seed("fuzz_gossip", "header_join", 0, b"\x07" + header.replace(b"dtrn\x01\x03", b"dtrn\x01\x01"))
    seed("fuzz_gossip", "header_join_reply", 0, b"\x06" + header.replace(b"dtrn\x01\x03", b"dtrn\x01\x02"))
    seed("fuzz_gossip", "row_bomb", 11, b"\x92" + b"\xdd\xff\xff\xff\xff" * 2)
    seed("fuzz_gossip", "nested_lists", 11, b"\x91" + b"\xdc\x0f\xff" * 20)
    gpu = {"index": 1, "pci": "0000:3b:00.0", "vendor": "10de", "model": "x", "memory_bytes": 1 << 36, "numa": 0, "healthy": True}
    seed("fuzz_gossip", "fact_resources", 252, pack({"task_address": "10.0.0.11", "version": "1", "cpu_millis": 96000,
         "memory_bytes": 1 << 40, "gpus": [gpu, gpu], "labels": {"rack": "a"}}))
    peer = {"id": "0f" * 16, "name": "gpu01", "ip": "10.0.0.11", "port": 7400, "boot_id": "b", "life": 3, "key_print": "k"}
    seed("fuzz_gossip", "record", 251, pack({"version": 1, "cluster_id": "1e" * 16, "book": [peer, peer], "left": False}))
    seed("fuzz_gossip", "fact_free", 253, pack({"cpu_millis": 500, "memory_bytes": 1 << 30, "gpus": 1}))
    seed("fuzz_gossip", "fact_council", 254, pack({"role": "voter", "epoch": 3}))
    keys = "# made by hand\n" + "".join("dtrain-key-v1 %s %s\n" % (digit * 64, "0f" * 32) for digit in "Ab1")
    seed("fuzz_gossip", "key_file", 255, keys.encode())


def raft():
    bodies = {name: (GOLDEN_RAFT / f"{name}.msgpack").read_bytes() for name in RAFT_TYPES}
    for number, name in enumerate(RAFT_TYPES):
        seed("fuzz_raft", name, 64 + number, bodies[name])
    for number, name in enumerate(("forward", "lease_request", "lease_answer"), 112):
        seed("fuzz_raft", name, number, (GOLDEN_RAFT / f"{name}.msgpack").read_bytes())
    # [[history 1, id (7, 7)], term, life [1, 1]], as the member that is talked to has it.
    own = b"\x92\x01\xc4\x10" + struct.pack(">QQ", 7, 7)

    def told(name, sender, term, body):
        content = b"\x92\x93" + own + bytes([term]) + b"\x92\x01\x01" + body
        return bytes([64 + RAFT_TYPES.index(name), sender]) + struct.pack(">H", len(content)) + content

    entry = b"\x94\x02\x00\x00\xc4\x01x"
    append = told("append_request", 2, 2, b"\x96\x01\x01\x01\x02\x00\x92" + entry + entry)
    cut = told("append_request", 3, 3, b"\x96\x01\x02\x02\x02\x00\x91\x94\x03\x00\x00\xc4\x01y")
    vote = told("vote_request", 3, 4, b"\x94\x00\x04\x09\x09")
    chunk = told("snapshot_chunk", 2, 5, b"\x99\x01\x09\x04\x91\x92" + 2 * (b"\xc4\x10" + bytes(7) + b"\x01" + bytes(7) + b"\x01")
                 + b"\x00\x00\x01\x00\xc4\x01s")
    wait = b"\x00\x00\x0b\xb8"  # 3 s
    seed("fuzz_raft", "conversation_follows", 2, append + b"\x03\x00\x00\x00" + cut + vote + chunk)
    granted = b"".join(told("vote_reply", voter, term, b"\x93\x01\x02\x01") for voter in (2, 3) for term in (1,)) + \
        told("vote_reply", 2, 2, b"\x93\x00\x02\x01")
    propose = b"\x01\x00\x00\x00"
    seed("fuzz_raft", "conversation_leads", 2, wait + granted + propose + told("append_reply", 2, 2, b"\x93\x01\x01\x03") + propose
         + b"\x02\x09\x00\x00" + told("append_reply", 3, 2, b"\x96\x01\x00\x00\x03\x01\x01"))
    seed("fuzz_raft", "conversation_alone", 1, propose + propose + b"\x03\x00\x00\x00" + b"\x02\x09\x00\x00" + wait)
    seed("fuzz_raft", "conversation_empty", 0, vote + append + cut + chunk)
    seed("fuzz_raft", "configuration", 250, (GOLDEN_RAFT / "configuration.msgpack").read_bytes())
    seed("fuzz_raft", "window", 251, struct.pack(">QQQQQQ", 1, 2, 3, 4, 5, 6))
    life = {"number": 3, "mark": 9}
    seed("fuzz_raft", "hard_state", 252, pack({"history": {"number": 1, "high": 2, "low": 3}, "term": 7, "voted_high": 1, "voted_low": 1,
                                               "lives": [{"high": 1, "low": 1, "life": life}], "stale": False}))
    seed("fuzz_raft", "entry", 253, pack({"index": 3, "term": 1, "payload": "p", "kind": 1, "elapsed": 5}))
    seed("fuzz_raft", "snapshot", 254, pack({"index": 3, "term": 1, "payload": "p", "configuration": "c", "elapsed": 5}))


def formation():
    golden = (GOLDEN_FORMATION / "report.msgpack").read_bytes()
    seed("fuzz_formation", "report", 128, golden)
    seed("fuzz_formation", "list_bomb", 128, b"\x9a" + b"\xc0" * 9 + b"\xdd\xff\xff\xff\xff")

    def ident(number):
        return b"\xc4\x10" + struct.pack(">QQ", number, number)

    def founding(cluster, proposer):
        members = b"".join(b"\x92" + bytes([seat]) + ident(seat + 1) for seat in range(3))
        return b"\x93" + ident(cluster) + ident(proposer) + b"\x93" + members

    def told(sender, promise, cluster=b"\xc0", rest=b""):
        body = bytes([0x97 + len(rest)]) + b"\xa8h1,h2,h3" + bytes([sender - 1, 0, 5, 1]) + promise + cluster + rest
        return bytes([4, sender]) + struct.pack(">H", len(body)) + body

    # Echo 1 is made an answer to the question of the round.
    free, bound = b"\xc0", founding(9, 2)
    passing, hour = b"\x00\x00\x01\xf4", b"\x00\x00\xff\xff"
    both = told(2, free) + told(3, free)
    seed("fuzz_formation", "proposes", 0, both + passing + both)
    seed("fuzz_formation", "refuses_a_larger_proposer", 0, both + told(2, bound) + passing)
    follows = told(2, founding(9, 1)) + told(3, founding(9, 1))
    seed("fuzz_formation", "bound_elsewhere", 0, follows + passing + follows)
    seed("fuzz_formation", "joins", 0, told(3, bound, ident(9), b"\x01") + passing + b"\x02\x00\x00\x00" + both)
    seed("fuzz_formation", "without", 0, passing + b"\x03\x03\x00\x00" + told(2, free) + hour + told(2, free) + told(3, free))
    member = {"seat": 0, "high": 1, "low": 1}
    promise = {"high": 1, "low": 2, "proposer_high": 1, "proposer_low": 1, "members": [member]}
    seed("fuzz_formation", "record", 252, pack({"promise": promise, "started": True, "withdrawn": [promise]}))


def relay():
    for number, name in enumerate(("open", "data", "close")):
        seed("fuzz_relay", name, 132 + number, (GOLDEN_RELAY / f"{name}.msgpack").read_bytes())
    seed("fuzz_relay", "array_bomb", 133, b"\xdd\xff\xff\xff\xff")

    def word(what, ticks, content=b""):
        return bytes([what, ticks]) + struct.pack(">H", len(content)) + content

    def data(offset, content, received, allowed, asks=0):
        return word(0, 1, b"\x97\x07\x01" + pack(offset) + b"\xc4" + bytes([len(content)]) + content + pack(received) + pack(allowed)
                    + bytes([asks]))

    write, read, half = word(2, 0, b"w" * 100), word(3, 0, b"r" * 50), 1 << 17
    seed("fuzz_relay", "talks", 0, data(0, b"hello", 0, half) + write + read + data(5, b" again", 100, half) + read + write)
    seed("fuzz_relay", "repeats", 0, write + word(1, 60) + data(9, b"gap", 0, 0, 1) + word(1, 255) + data(0, b"late", 50, half) + read)
    seed("fuzz_relay", "lies", 0, write + data(0, b"x" * 100, 101, 1 << 60) + data(50, b"y" * 100, 1 << 60, 0) + read + read + read)


def bridge():
    allow = b"\x03" + struct.pack("<I", 50)
    for name, message in (("hello", b"\x01\x01"), ("data", b"\x02bytes"), ("allow", allow), ("ping", b"\x04"), ("end", b"\x06")):
        seed("fuzz_bridge", name, 1, message)
    own = "dtrain-client-v1 %s %s\n" % ("01" * 32, "ab" * 32)
    seed("fuzz_bridge", "key_file", 2, ("# mine\n" + own + "dtrain-agents-v1 %s\n" % ("0F" * 32)).encode())
    seed("fuzz_bridge", "key_file_two_agents", 2, (own + "".join("dtrain-agents-v1 %s\n" % (n * 32) for n in ("02", "03"))).encode())

    def word(what, ticks, content=b""):
        return bytes([what, ticks]) + struct.pack(">H", len(content)) + content

    say, hand_on = word(1, 1, b"w" * 100), word(2, 0, b"r" * 50)
    talk = word(0, 1, b"\x02hello") + say + word(0, 1, allow) + hand_on + word(0, 0, b"\x04") + say
    seed("fuzz_bridge", "talks", 0, talk + word(0, 1, b"\x06"))
    seed("fuzz_bridge", "silent", 0, say + word(2, 120) + word(0, 0, b"\x05") + word(2, 255) + word(2, 255))
    seed("fuzz_bridge", "lies", 0, say + word(0, 1, b"\x03\xff\xff\xff\xff"))


def job_spec():
    role = {"replicas": 2, "command": ["python3", "train.py"], "env": {"A": "b"}, "restart_policy": 3,
            "resources": {"cpu_millis": 500, "memory_bytes": 1 << 33}, "start_after": {"ps": 1}}
    return pack({"name": "digits", "framework": 0, "labels": {"team": "x"}, "roles": {"worker": role, "ps": role},
                 "checkpoint": {"dir": "/ckpt", "keep": 3, "restore": "auto"},
                 "policy": {"backoff_limit": 5, "active_deadline": None, "stop_grace_period": 30 * 10**9}})


def zipped(method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in (("archive/data.pkl", b"pickle"), ("archive/data/0", bytes(40))):
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def sized(content):
    return struct.pack("<Q", len(content)) + content


def checkpoint():
    sha = hashlib.sha256(b"w").hexdigest()
    manifest = f'{{"version":1,"step":12,"files":[{{"name":"a/w.npy","size":1,"sha256":"{sha}"}}],"loss":[0.5,{{}}]}}'
    seed("fuzz_checkpoint", "manifest", 0, manifest.encode())
    seed("fuzz_checkpoint", "manifest_deep", 0, b'{"x":' + b"[" * 40)
    seed("fuzz_checkpoint", "index", 1, table(bundle_pairs()))
    seed("fuzz_checkpoint", "state", 2, b'model_checkpoint_path: "ck\\"pt-2"\nall_model_checkpoint_paths: \'a\' "b"\n'
         b'all_model_checkpoint_timestamps: 1.5e9 # comment\nlast_preserved_timestamp: 2\n')
    seed("fuzz_checkpoint", "block", 3, entries(bundle_pairs()) + struct.pack("<II", 0, 1))
    shared = varint(2) + varint(1) + varint(0) + b"d"
    seed("fuzz_checkpoint", "block_shared", 3, entries(bundle_pairs()[:2]) + shared + struct.pack("<II", 0, 1))
    lengths = struct.pack("<II", 2, 3)
    seed("fuzz_checkpoint", "text", 4, b"\x07\x02" + b"\x02\x03" + masked(lengths) + b"hiyou")
    variant = struct.pack("<Q", 2) + b"hi"
    tensors = b'{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}'
    saved = struct.pack("<Q", len(tensors)) + tensors + bytes(8)
    seed("fuzz_checkpoint", "file_torch", 5, b"\x02" + zipped(zipfile.ZIP_STORED))
    seed("fuzz_checkpoint", "file_torch_packed", 5, b"\x02" + zipped(zipfile.ZIP_DEFLATED))
    seed("fuzz_checkpoint", "file_safetensors", 5, b"\x03" + saved)
    seed("fuzz_checkpoint", "table_safetensors", 6, b"\x03" + struct.pack("<Q", len(saved)) + saved)
    text = b'{"global_step": 5, "x": [NaN, "\\""]}'
    files = b"".join(sized(name) + struct.pack("<QB", len(content), kind) + sized(table) for name, kind, content, table in (
        (b"model.safetensors", 3, saved, struct.pack("<Q", len(saved)) + saved), (b"trainer_state.json", 1, text, text)))
    seed("fuzz_checkpoint", "table_huggingface", 6, b"\x04" + bytes(24) + files)
    pickle, shard = b"\x80\x04\x8c\x0d__0_0.distcp.", zipped(zipfile.ZIP_STORED)
    place = struct.pack("<QQ", 0, len(shard)) + shard[shard.index(b"PK\1\2"):]
    files = b"".join(sized(name) + struct.pack("<QB", size, kind) + sized(table) for name, kind, size, table in (
        (b".metadata", 1, len(pickle), pickle), (b"__0_0.distcp", 2, len(shard), sized(place))))
    seed("fuzz_checkpoint", "table_torch_distributed", 6, b"\x05" + files)
    rank = zipped(zipfile.ZIP_STORED)
    place = struct.pack("<QQ", 0, len(rank)) + rank[rank.index(b"PK\1\2"):]

    def ranks(counts, *names):
        return struct.pack("<%dQ" % len(counts), *counts) + b"".join(
            sized(name) + struct.pack("<QB", len(rank), 2) + sized(sized(place)) for name in names)

    seed("fuzz_checkpoint", "table_deepspeed", 6, b"\x08" + ranks(
        (1, 1, 1), b"mp_rank_00_model_states.pt", b"zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    seed("fuzz_checkpoint", "table_megatron", 6, b"\x09" + ranks(
        (2,), b"mp_rank_00_000/model_optim_rng.pt", b"mp_rank_00_001/model_optim_rng.pt"))
    files = b"".join(sized(name) + struct.pack("<QB", 2, kind) + sized(table) for name, kind, table in (
        (b"_CHECKPOINT_METADATA", 1, b"{}"), (b"default/d/0", 0, struct.pack("<Q", 2))))
    seed("fuzz_checkpoint", "table_orbax", 6, b"\x0a" + files)
    superblock = b"\x89HDF\r\n\x1a\n" + bytes(5) + b"\x08\x08\0" + struct.pack("<HHI", 4, 16, 0)
    superblock += struct.pack("<QqQqQQ", 0, -1, 128, -1, 0, 96) + bytes(24)
    seed("fuzz_checkpoint", "file_hdf5", 5, b"\x0b" + superblock.ljust(128, b"o"))
    json_model = b'{"learner":{"x":[1,-2.5E3,NaN,"a\\u00e9"]},"version":[1,7,4]}'
    ubjson_model = b"{L\0\0\0\0\0\0\0\x07learner{i\x01x[$d#U\x02abcdefghi\x01yS" + b"U\x01t}U\x01v[#i\x02i\x01i\x07}"
    seed("fuzz_checkpoint", "file_xgboost_json", 5, b"\x0c" + json_model)
    seed("fuzz_checkpoint", "file_xgboost_ubjson", 5, b"\x0c" + ubjson_model)
    seed("fuzz_checkpoint", "json", 8, json_model)
    seed("fuzz_checkpoint", "ubjson", 9, ubjson_model)
    one_file = b"\x01\x01\x00d"                                        # one data file, called d
    leaf = b"\0" + one_file + b"\x02" + b"\x01" + b"\x02\x01" + b"abc" + b"\x05\x03" + b"\x01\0" + b"\0" + b"\x07" + b"xyz"
    root = bytes(16) + b"\0" + b"\x08\x7f" + b"\x04" + b"\0" + one_file                # a configuration, and the same data file
    root += b"\x01\x01\0\0\0" + varint(len(leaf) + 18) + b"\x02\x03\x05" + bytes(8) + b"\0"
    seed("fuzz_checkpoint", "database", 7, bytes([len(root)]) + root + leaf)
    seed("fuzz_checkpoint", "variant", 4, b"\x15\x01" + b"\x02hi" + masked(variant))


def stored():
    seed("fuzz_stored_records", "job_spec", 0, job_spec())
    seed("fuzz_stored_records", "log_entry", 1, pack({"index": 3, "term": 1, "payload": "p"}))
    seed("fuzz_stored_records", "snapshot", 2, pack({"index": 3, "term": 1, "payload": "p"}))
    seed("fuzz_stored_records", "shim_spec", 3, pack({
        "id": {"job": 1, "generation": 2, "task": {"role": "ps", "index": 0}}, "argv": ["a"], "port": 2222}))
    seed("fuzz_stored_records", "exit", 4, pack({"code": 1, "unknown": False, "cause": "x"}))
    seed("fuzz_stored_records", "checkpoint_info", 5, pack({"format": 1, "path": "/p", "step": 5, "complete": True}))


codec()
gossip()
raft()
formation()
relay()
bridge()
seed("fuzz_codec", "job_spec", 1, job_spec())
checkpoint()
stored()
