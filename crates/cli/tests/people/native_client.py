"""A client of the native protocol, written from docs/internals/native-protocol.md and
canonical-bytes.md alone. It makes a directory, registers a file, locates it, lists with pages, and
repeats a request. Argument: path of the server's socket."""
import os
import socket
import struct
import sys
import time

HELLO, HELLO_ACK, AUTHENTICATE, AUTHENTICATED, REQUEST, ANSWER, ERROR = 1, 2, 3, 4, 5, 7, 13
PART, END, PING, PONG = 9, 10, 14, 15
WITH_ID, AS_STREAM = 1, 4
STAT, WHEREIS, LIST, MKDIR, REGISTER = 2, 3, 5, 8, 9
DONE, EACH_DONE, STATS, WHERE, ENTRIES, REGISTERED = 1, 2, 4, 5, 7, 9
EXISTS, NOT_DIRECTORY, CONFLICT = 2, 3, 9


def number(value):
    """LEB128, the shortest form."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def octets(value):
    return number(len(value)) + value


def text(value):
    return octets(value.encode())


def sequence(items):
    return number(len(items)) + b"".join(items)


NONE, NO, YES = b"\0", b"\0", b"\1"


def some(value):
    return b"\1" + value


class Reader:
    """Takes canonical values from bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data), "the body ends early"
        return self.data[self.at - count : self.at]

    def byte(self):
        return self.take(1)[0]

    def number(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def octets(self):
        return self.take(self.number())

    def text(self):
        return self.octets().decode()

    def optional(self, read):
        return read() if self.byte() else None

    def sequence(self, read):
        return [read() for _ in range(self.number())]

    def result(self, read):
        kind = self.byte()
        return read() if kind == 0 else (kind, self.text())

    def end(self):
        assert self.at == len(self.data), "bytes behind the body"

    # Types of canonical-bytes.md.

    def checksum(self):
        algorithm = self.byte()
        return algorithm, self.take({1: 4, 2: 4, 3: 16, 4: 20, 5: 32}[algorithm])

    def replica_at(self):
        return {"se": self.optional(self.text), "state": self.byte(), "pfn": self.text()}

    def whereis(self):
        return {
            "guid": self.take(16),
            "size": self.optional(self.number),
            "checksums": self.sequence(self.checksum),
            "replicas": self.sequence(self.replica_at),
        }

    def registered(self):
        return self.byte(), self.take(16)

    def tag(self):
        key, kind = self.text(), self.byte()
        read = {1: self.text, 2: self.number, 3: lambda: self.take(8), 4: self.number, 5: self.byte}
        return key, read[kind]()

    def replica(self):
        se, state, location = self.number(), self.byte(), self.byte()
        if location == 1:
            self.text()
        if location == 2:
            self.take(16), self.text()
        return se, state

    def entry(self):
        self.number(), self.text()  # at
        entry = {"owner": self.number(), "group": self.number(), "mode": self.number()}
        entry.update(created=self.number(), modified=self.number(), revision=self.number())
        entry["expires"] = self.optional(self.number)
        entry["tags"] = self.sequence(self.tag)
        kind = self.byte()
        entry["kind"] = kind
        if kind == 1:
            entry["directory"] = self.number()
        elif kind == 2:
            entry.update(guid=self.take(16), size=self.optional(self.number))
            entry["checksums"] = self.sequence(self.checksum)
            entry["job"] = self.optional(self.number)
            entry["replicas"] = self.sequence(self.replica)
        elif kind == 3:
            entry.update(guid=self.take(16), members=self.number())
        elif kind == 4:
            entry.update(guid=self.take(16), target=self.text())
        else:
            raise AssertionError(f"body {kind}")
        return entry

    def stat(self):
        return {"lfn": self.text(), "owner": self.text(), "group": self.text(), "entry": self.entry()}

    def entries(self):
        return {
            "items": self.sequence(self.stat),
            "ses": self.sequence(lambda: (self.number(), self.text())),
            "next": self.optional(self.octets),
        }


class Refused(Exception):
    """Error of a request: kind and message."""


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(path)
        self.last_id = 0
        magic = b"exacat\r\n"
        self.send(HELLO, 0, 0, magic + number(1) + number(1) + number(0) + text("page client 1"))
        reader = Reader(self.expect(HELLO_ACK, 0))
        assert reader.take(8) == magic
        assert reader.number() == 1, "version"
        assert reader.number() == 0, "no features were offered"
        self.limits = [reader.number() for _ in range(4)]
        self.server, self.catalogue = reader.text(), reader.take(16)
        self.timeline, self.must_authenticate = reader.take(16), reader.byte()
        # Local: the kernel names the peer. No other account to act as.
        self.send(AUTHENTICATE, 0, 0, b"\1" + NONE)
        reader = Reader(self.expect(AUTHENTICATED, 0))
        self.user, self.scope, self.may_write = reader.optional(reader.text), reader.text(), reader.byte()
        reader.end()

    def send(self, kind, flags, request, body):
        frame = struct.pack("<BBQ", kind, flags, request) + body
        self.socket.sendall(struct.pack("<I", len(frame)) + frame)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the server closed the connection"
            data += more
        return data

    def receive(self):
        while True:
            (length,) = struct.unpack("<I", self.exactly(4))
            frame = self.exactly(length)
            kind, _flags, request = struct.unpack("<BBQ", frame[:10])
            if kind != PING:
                return kind, request, frame[10:]
            self.send(PONG, 0, 0, frame[10:])

    def expect(self, wanted, request):
        kind, of, body = self.receive()
        if kind == ERROR:
            reader = Reader(body)
            raise Refused(reader.byte(), reader.text())
        assert (kind, of) == (wanted, request), (kind, of)
        return body

    def begin(self, operation, fields, identity=None, stream_credit=None):
        self.last_id += 1
        flags, before = 0, b""
        if identity is not None:
            flags, before = flags | WITH_ID, before + identity
        if stream_credit is not None:
            flags, before = flags | AS_STREAM, before + number(stream_credit)
        self.send(REQUEST, flags, self.last_id, before + bytes([operation]) + fields)
        return self.last_id

    def call(self, operation, fields, identity=None):
        request = self.begin(operation, fields, identity)
        reader = Reader(self.expect(ANSWER, request))
        return reader.byte(), reader

    def each(self, wanted, read, operation, fields, identity=None):
        """Calls an operation with one result for each item."""
        answer, reader = self.call(operation, fields, identity)
        assert answer == wanted, answer
        results = reader.sequence(lambda: reader.result(read(reader)))
        reader.end()
        return results

    def page(self, lfn, cursor, limit):
        answer, reader = self.call(LIST, text(lfn) + octets(cursor) + number(limit))
        assert answer == ENTRIES, answer
        page = reader.entries()
        reader.end()
        return page

    def stream(self, lfn, limit):
        """Lists as a stream: pages come as parts."""
        fields = text(lfn) + octets(b"") + number(limit)
        request = self.begin(LIST, fields, stream_credit=1024)
        names, parts = [], 0
        while True:
            kind, of, body = self.receive()
            assert of == request
            reader = Reader(body)
            if kind == END:
                assert reader.number() == parts
                return names, parts
            assert kind == PART and reader.byte() == ENTRIES
            names += [item["lfn"] for item in reader.entries()["items"]]
            parts += 1


def new_identity():
    """An operation id: a UUID of version 7."""
    milliseconds = int(time.time() * 1000).to_bytes(6, "big")
    random = bytearray(os.urandom(10))
    random[0], random[2] = random[0] & 0x0F | 0x70, random[2] & 0x3F | 0x80
    return milliseconds + bytes(random)


def new_file(lfn, size, replicas):
    placed = [text(se) + NONE + b"\1" for se in replicas]
    return (
        text(lfn) + NONE + some(number(size)) + sequence([b"\1" + bytes.fromhex("0a1af2bf")])
        + NONE + NONE + NONE + NONE + NONE + NONE  # owner, group, mode, modified, expires, job
        + sequence([text("run") + b"\1" + text("12")]) + sequence(placed) + NONE
    )


def main(path):
    client = Client(path)
    assert client.user and client.scope == "/" and client.may_write

    nothing = lambda reader: lambda: None
    mkdir = sequence([text("/page/deep")]) + YES + NONE
    assert client.each(EACH_DONE, nothing, MKDIR, mkdir, new_identity()) == [None]
    again = sequence([text("/page/deep")]) + NO + NONE
    (refused,) = client.each(EACH_DONE, nothing, MKDIR, again, new_identity())
    assert refused[0] == EXISTS, refused

    registered = lambda reader: reader.registered
    files = [new_file(f"/page/deep/f{index}", 100 + index, ["TEST::SE"]) for index in range(5)]
    register = sequence(files) + NO + b"\1"
    identity = new_identity()
    first = client.each(REGISTERED, registered, REGISTER, register, identity)
    assert [outcome for outcome, _guid in first] == [1] * 5, first
    # The same id and content again: the same answer, also on another connection.
    assert client.each(REGISTERED, registered, REGISTER, register, identity) == first
    other = Client(path)
    assert other.each(REGISTERED, registered, REGISTER, register, identity) == first
    # The same id with other content.
    changed = sequence(files[:1]) + NO + b"\1"
    try:
        results = client.each(REGISTERED, registered, REGISTER, changed, identity)
        assert all(kind == CONFLICT for kind, _message in results), results
    except Refused as refused:
        assert refused.args[0] == CONFLICT, refused

    whereis = sequence([b"\1" + text("/page/deep/f3"), b"\2" + first[0][1]]) + NONE
    by_name, by_guid = client.each(WHERE, lambda reader: reader.whereis, WHEREIS, whereis)
    assert by_name["size"] == 103 and by_guid["size"] == 100, (by_name, by_guid)
    assert by_name["replicas"][0]["se"] == "TEST::SE"
    assert by_name["replicas"][0]["pfn"].startswith("root://se.example.org/"), by_name

    names, cursor, pages = [], b"", 0
    while True:
        page = client.page("/page/deep", cursor, 2)
        names += [item["lfn"] for item in page["items"]]
        pages += 1
        if page["next"] is None:
            break
        cursor = page["next"]
    assert names == [f"/page/deep/f{index}" for index in range(5)], names
    assert client.stream("/page/deep", 2)[0] == names
    assert [item["lfn"] for item in client.page("/page/deep/f1", b"", 0)["items"]] == ["/page/deep/f1"]
    print(f"{client.server}: user {client.user}, {len(names)} names in {pages} pages")


if __name__ == "__main__":
    main(sys.argv[1])
