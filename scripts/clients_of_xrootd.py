"""What `make test-clients` tries with clients of XRootD: Debian's xrdfs, xrdcp and gfal2, PyPI's xrootd, uproot with
fsspec-xrootd, and an XCache; against stock xrootd servers that let in by the tokens in redirections only.

`test-clients.py` runs these functions, in this order, each with the rig of everything that runs.
"""

import json
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
import zlib

from clients_rig import PATIENCE, Failed, Left, expect, free_port, install, is_open, wait_until

TOP = "/vo"
HANDSHAKE = struct.pack(">5i", 0, 0, 0, 4, 2012)
# Without these a client waits eight minutes for a server that is gone.
IMPATIENT = {"XRD_CONNECTIONWINDOW": "3", "XRD_CONNECTIONRETRY": "1", "XRD_REQUESTTIMEOUT": "20",
             "XRD_STREAMTIMEOUT": "20", "XRD_TIMEOUTRESOLUTION": "1", "XRD_STREAMERRORWINDOW": "5"}
NOT_DONE = 54
WRONG_CHECKSUM = 53


def need(rig):
    if not rig.storage:
        raise Left("no xrootd runs here")
    if getattr(rig, "xrd", None) is None:
        prepare(rig)


def prepare(rig):
    """A user with a token, the server's certificate where the clients look, files with bytes on the storage elements."""
    rig.xrd = pathlib.Path(rig.xrootd_root or "/") / "usr/bin"
    if not (rig.xrd / "xrdcp").exists():
        raise Left("xrdcp and xrdfs are not installed (Debian: xrootd-client)")
    trust = rig.place / "trust"
    trust.mkdir()
    certificate = rig.data / "server.crt"
    name = rig.run(["openssl", "x509", "-in", str(certificate), "-noout", "-hash"]).strip()
    shutil.copy(certificate, trust / f"{name}.0")
    rig.admin("mkdir", "-p", TOP)
    rig.admin("chown", "jdoe:jdoe", TOP)
    token = rig.admin("token", "issue", "--user", "jdoe", "--write", "--lifetime", "1h").strip()
    rig.user_token = token
    rig.root = f"root://localhost:{rig.xrootd_port}"
    rig.xrd_environment = {"PATH": f"{rig.xrd}:/usr/bin:/bin", "HOME": str(rig.place), "LANG": "C.UTF-8",
                           "X509_CERT_DIR": str(trust), "BEARER_TOKEN": token, **IMPATIENT}
    if rig.xrootd_root:
        rig.xrd_environment["LD_LIBRARY_PATH"] = str(pathlib.Path(rig.xrootd_root) / "usr/lib/x86_64-linux-gnu")
    rig.contents = {}
    put(rig, f"{TOP}/d/both.bin", os.urandom(3_000_000), [0, 1])
    put(rig, f"{TOP}/d/second.bin", os.urandom(100_000), [1])
    put(rig, f"{TOP}/d/hello world.txt", b"hello world", [0, 1])


def put(rig, lfn, content, ses):
    """A file in the catalogue, with its bytes where they should be."""
    words = ["register", "-p", lfn, "--owner", "jdoe", "--size", str(len(content)), "--checksum",
             f"adler32:{zlib.adler32(content):08x}"]
    for number in ses:
        words += ["--se", rig.ses[number]]
    rig.admin(*words)
    rig.contents[lfn] = content
    for number, path in physical(rig, lfn).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        # As the data server, which may run as somebody else, would have made them: it writes beside them later.
        above = path.parents[2].stat()
        for made in [path, *list(path.parents)[:2]]:
            os.chmod(made, 0o755)
            if os.geteuid() == 0:
                os.chown(made, above.st_uid, above.st_gid)


def physical(rig, lfn):
    """The file behind each replica, by the place of its storage element."""
    told = json.loads(rig.admin("--json", "whereis", lfn))
    found = {}
    for replica in told["replicas"]:
        number = rig.ses.index(replica["se"])
        found[number] = rig.place / f"se{number + 1}" / "files" / replica["pfn"].split("//")[2]
    return found


def run(rig, *words, status=0, **environment):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE,
                          env={**rig.xrd_environment, **environment}, cwd=rig.place)
    if status is not None and done.returncode != status:
        raise Failed(f"{' '.join(map(str, words))}: status {done.returncode} in place of {status}\n"
                     f"{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def fs(rig, *words, **more):
    return run(rig, "xrdfs", rig.root, *words, **more)


def copy(rig, lfn, *options, root=None, status=0, content=None, **environment):
    """Reads a file by xrdcp, and looks whether its bytes are right."""
    target = rig.place / "got"
    target.unlink(missing_ok=True)
    told = run(rig, "xrdcp", "-f", "-N", *options, f"{root or rig.root}/{lfn}", target, status=status, **environment)
    if status == 0:
        expect(f"the bytes of {lfn}", target.read_bytes() == (content or rig.contents.get(lfn)), told)
    return told


# ---- what is tried -------------------------------------------------------------------------------------------------------


def xrdfs_names(rig):
    """xrdfs: stat, ls, ls -l, ls -R, ls -C, locate, query, mkdir, mv, chmod, rm, rmdir."""
    need(rig)
    size = len(rig.contents[f"{TOP}/d/both.bin"])
    expect("stat", f"Size:   {size}" in fs(rig, "stat", f"{TOP}/d/both.bin"))
    fs(rig, "stat", "/nope", status=NOT_DONE)
    listed = fs(rig, "ls", f"{TOP}/d").split("\n")
    expect("ls", f"{TOP}/d/hello world.txt" in listed and f"{TOP}/d/both.bin" in listed, listed)
    listed = fs(rig, "ls", "-l", f"{TOP}/d")
    expect("ls -l", str(size) in listed and "jdoe" in listed, listed)
    listed = fs(rig, "ls", "-R", TOP)
    expect("ls -R", f"{TOP}/d/second.bin" in listed, listed)
    if "-C" in run(rig, "xrdfs", "--help", status=None):
        listed = fs(rig, "ls", "-C", f"{TOP}/d")
        expect("ls -C", f"adler32:{zlib.adler32(rig.contents[f'{TOP}/d/both.bin']):08x}" in listed, listed)
    told = fs(rig, "locate", f"{TOP}/d/both.bin")
    expect("locate", "127.0.0.1:" in told and "127.0.0.2:" in told, told)
    told = fs(rig, "query", "checksum", f"{TOP}/d/both.bin")
    expect("checksum", f"adler32 {zlib.adler32(rig.contents[f'{TOP}/d/both.bin']):08x}" in told, told)
    expect("config", "0:adler32" in fs(rig, "query", "config", "chksum"))
    expect("space", "oss.used=" in fs(rig, "query", "space", "/"))
    fs(rig, "mkdir", "-p", f"{TOP}/n/a/b")
    fs(rig, "mkdir", f"{TOP}/n/a", status=NOT_DONE)
    fs(rig, "mv", f"{TOP}/n/a/b", f"{TOP}/n/c")
    fs(rig, "chmod", f"{TOP}/n/c", "rwxr-x---")
    expect("chmod", "0750" in fs(rig, "stat", f"{TOP}/n/c") or "rwxr-x---" in rig.admin("ls", "-l", f"{TOP}/n"))
    put(rig, f"{TOP}/n/f", b"x", [0])
    fs(rig, "rmdir", f"{TOP}/n", status=NOT_DONE)
    fs(rig, "rm", f"{TOP}/n/c", status=NOT_DONE)
    fs(rig, "rm", f"{TOP}/n/f")
    for path in ["n/c", "n/a", "n"]:
        fs(rig, "rmdir", f"{TOP}/{path}")
    fs(rig, "stat", f"{TOP}/n", status=NOT_DONE)


def xrdcp_reads(rig):
    """xrdcp: reading by redirection, checksums, a file of a name that needs escapes."""
    need(rig)
    for lfn in [f"{TOP}/d/both.bin", f"{TOP}/d/second.bin", f"{TOP}/d/hello world.txt"]:
        copy(rig, lfn)
    # Who comes by TLS stays with it where it is sent, and that server's certificate has to name it.
    run(rig, "xrdcp", "-f", "-N", f"roots://localhost:{rig.xrootd_port}/{TOP}/d/both.bin", rig.place / "got")
    right = f"{zlib.adler32(rig.contents[f'{TOP}/d/both.bin']):08x}"
    copy(rig, f"{TOP}/d/both.bin", "--cksum", f"adler32:{right}")
    copy(rig, f"{TOP}/d/both.bin", "--cksum", "adler32:00000001", status=WRONG_CHECKSUM)
    copy(rig, f"{TOP}/nope", status=NOT_DONE)


def known(rig, lfn, content):
    """A file that was written is in the catalogue as it is, with its bytes where that says."""
    told = json.loads(rig.admin("--json", "stat", lfn))
    expect(f"the size of {lfn}", told["size"] == len(content), told)
    expect(f"the checksum of {lfn}", f"adler32:{zlib.adler32(content):08x}" in told["checksums"], told)
    places = physical(rig, lfn)
    for path in places.values():
        expect(f"the bytes of {lfn}", path.read_bytes() == content)
    rig.contents[lfn] = content
    return sorted(places)


def is_there(rig, lfn):
    words = ["xrdfs", rig.root, "stat", lfn]
    return subprocess.run(words, capture_output=True, env=rig.xrd_environment, timeout=PATIENCE).returncode == 0


def xrdcp_writes(rig):
    """xrdcp: writing to the catalogue, over a name that is taken, interrupted, beside a data server that is down."""
    need(rig)
    source, content = rig.place / "up.bin", os.urandom(4_000_000)
    source.write_bytes(content)
    for lfn, options in [(f"{TOP}/w/new dir/a.bin", []), (f"{TOP}/w/forced.bin", ["-f"]), (f"{TOP}/w/posc.bin", ["--posc", "-p"])]:
        run(rig, "xrdcp", "-N", *options, source, f"{rig.root}/{lfn}")
        expect(f"{lfn} is there at once", is_there(rig, lfn))
        expect("one replica", len(known(rig, lfn, content)) == 1)
        copy(rig, lfn)
    other = rig.place / "other.bin"
    other.write_bytes(b"another")
    for options in [[], ["-f"]]:
        told = run(rig, "xrdcp", "-N", *options, other, f"{rig.root}/{TOP}/w/forced.bin", status=None)
        expect("a name that is taken is refused", "exist" in told, told)
    known(rig, f"{TOP}/w/forced.bin", content)
    (rig.place / "nothing").write_bytes(b"")
    run(rig, "xrdcp", "-N", rig.place / "nothing", f"{rig.root}/{TOP}/w/empty")
    expect("an empty file", is_there(rig, f"{TOP}/w/empty"))
    # Nobody asks for it: it is found whole.
    run(rig, "xrdcp", "-N", source, f"{rig.root}/{TOP}/w/alone.bin")
    wait_until("the file is found", lambda: "alone.bin" in rig.admin("ls", f"{TOP}/w"))
    # Interrupted in the middle it is not there, and its name is not taken.
    process = subprocess.Popen(["xrdcp", "-N", "--xrate", "500k", str(source), f"{rig.root}/{TOP}/w/half.bin"],
                               env=rig.xrd_environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until("it is reserved", lambda: "half.bin" in rig.admin("upload", "ls"))
    expect("it is not there while it is written", not is_there(rig, f"{TOP}/w/half.bin"))
    process.kill()
    process.wait(20)
    expect("it is not there", not is_there(rig, f"{TOP}/w/half.bin"))
    run(rig, "xrdcp", "-N", source, f"{rig.root}/{TOP}/w/half.bin")
    expect("it is there", is_there(rig, f"{TOP}/w/half.bin"))
    # A checksum that is reserved is looked at.
    told = f"{rig.root}/{TOP}/w/wrong.bin?exacat.checksum=adler32:00000001"
    run(rig, "xrdcp", "-N", source, told)
    expect("what is wrong is not there", not is_there(rig, f"{TOP}/w/wrong.bin"))
    # Nobody without leave writes.
    run(rig, "xrdcp", "-N", source, f"{rig.root}//elsewhere", status=None)
    expect("nothing is written where one may not", not is_there(rig, "/elsewhere"))
    # A storage element that is down is left out after one try.
    down = rig.storage_processes[0]
    down.terminate()
    down.wait(20)
    try:
        for number in range(3):
            lfn = f"{TOP}/w/over{number}.bin"
            run(rig, "xrdcp", "-N", source, f"{rig.root}/{lfn}")
            expect(f"{lfn} is there", is_there(rig, lfn))
            expect("elsewhere", 0 not in known(rig, lfn, content))
    finally:
        rig.start_storage(0)
    for words in [["truncate", f"{TOP}/w/a", "3"], ["prepare", "-s", f"{TOP}/w/forced.bin"]]:
        fs(rig, *words, status=NOT_DONE)


def tls_answers(rig):
    """xrdfs ls -R over TLS: every answer reaches the client, as each has a TLS record of its own."""
    need(rig)
    top, runs = f"{TOP}/r", int(os.environ.get("EXACAT_TEST_TLS_RUNS", "20"))
    names = [f"{top}/d{number}/s{below}" for number in range(20) for below in range(4)]
    rig.admin("mkdir", "-p", *names)
    expected = len(names) + 20
    for number in range(runs):
        listed = run(rig, "xrdfs", f"roots://localhost:{rig.xrootd_port}", "ls", "-R", top, XRD_REQUESTTIMEOUT="8").split()
        expect(f"ls -R is complete, run {number}", len(listed) == expected, listed)


def refused(rig):
    """gfal-copy -K and xrdcp --rm-bad-cksum: a file whose checksum the client refuses is not there; a right one is."""
    need(rig)
    source, content = rig.place / "checked.bin", os.urandom(300_000)
    source.write_bytes(content)
    right, wrong = f"{zlib.adler32(content):08x}", "00000001"
    for checksum in [right, "source"]:
        lfn = f"{TOP}/k/{checksum}.bin"
        run(rig, "xrdcp", "-N", "--cksum", f"adler32:{checksum}", source, f"{rig.root}/{lfn}")
        expect(f"{lfn} is there", is_there(rig, lfn))
        known(rig, lfn, content)
        copy(rig, lfn, "--cksum", "adler32:source")
    run(rig, "xrdcp", "-N", "--rm-bad-cksum", "--cksum", f"adler32:{wrong}", source, f"{rig.root}/{TOP}/k/wrong.bin",
        status=WRONG_CHECKSUM)
    gone = [f"{TOP}/k/wrong.bin"]
    if shutil.which("gfal-copy", path=rig.xrd_environment["PATH"]):
        python = {"GFAL_PYTHONBIN": "/usr/bin/python3"}
        lfn = f"{TOP}/k/gfal.bin"
        run(rig, "gfal-copy", "-p", "-K", "ADLER32", f"file://{source}", f"{rig.root}/{lfn}", **python)
        expect(f"{lfn} is there", is_there(rig, lfn))
        known(rig, lfn, content)
        lfn = f"{TOP}/k/gfal-wrong.bin"
        told = run(rig, "gfal-copy", "-p", "-K", f"ADLER32:{wrong}", f"file://{source}", f"{rig.root}/{lfn}", status=None,
                   **python)
        expect("gfal-copy refuses it", "checksum" in told.lower(), told)
        gone.append(lfn)
    wait_until("nothing is reserved any more", lambda: "wrong" not in rig.admin("upload", "ls"))
    for lfn in gone:
        expect(f"{lfn} is not there", not is_there(rig, lfn))
        expect(f"{lfn} never was", lfn not in rig.admin("trash", "ls"))


def directories(rig):
    """xrdcp -r of 60 files: listed and copied back whole, at once."""
    need(rig)
    source, contents = rig.place / "many", {}
    for number in range(60):
        path = source / f"s{number % 3}" / f"f{number:02}"
        path.parent.mkdir(parents=True, exist_ok=True)
        contents[path.relative_to(source)] = os.urandom(2_000)
        path.write_bytes(contents[path.relative_to(source)])
    for repeat in range(int(os.environ.get("EXACAT_TEST_COPIES", "2"))):
        top, target = f"{TOP}/many{repeat}", rig.place / f"many-back{repeat}"
        fs(rig, "mkdir", "-p", top)
        run(rig, "xrdcp", "-N", "-r", source, f"{rig.root}/{top}/")
        # A listing shows what the data servers confirm within 5 s: on a busy machine a later one has the rest.
        wait_until("all are listed", lambda: sum("/f" in name for name in fs(rig, "ls", "-R", top).split()) == 60)
        target.mkdir()
        run(rig, "xrdcp", "-N", "-r", f"{rig.root}/{top}/", target)
        back = {path.name: path.read_bytes() for path in target.rglob("f*") if path.is_file()}
        lost = sorted(path.name for path, content in contents.items() if back.get(path.name) != content)
        expect(f"all come back in round {repeat}, {lost} do not", not lost and len(back) == 60, fs(rig, "ls", "-l", "-R", top))


def exacat_cp(rig):
    """exacat cp: both ways, several replicas, a replica that is wrong, names with blanks and question marks, directories."""
    need(rig)
    environment = {**rig.xrd_environment, "EXACAT_TOKEN": rig.user_token}

    def cp(*words, status=0):
        command = [rig.exacat, "--data", str(rig.data), "cp", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, cwd=rig.place)
        if status is not None and done.returncode != status:
            raise Failed(f"exacat cp {words}: status {done.returncode} in place of {status}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    content = os.urandom(2_500_000)
    (rig.place / "cp.bin").write_bytes(content)
    told = json.loads(cp("--json", "file:cp.bin", f"{TOP}/cp/two.bin@disk:2"))
    expect("two replicas", len(told["replicas"]) == 2, told)
    expect("adler32 and md5", len(told["checksums"]) == 2, told)
    places = known(rig, f"{TOP}/cp/two.bin", content)
    cp("-v", f"{TOP}/cp/two.bin", "file:back.bin")
    expect("the same bytes", (rig.place / "back.bin").read_bytes() == content)
    cp(f"{TOP}/cp/two.bin", "file:back.bin", status=1)
    # Further replicas of what is the same, and of nothing else.
    left = [rig.ses[number] for number in range(len(rig.ses)) if number not in places][0]
    cp("file:cp.bin", f"{TOP}/cp/two.bin@{left}")
    expect("three replicas", len(known(rig, f"{TOP}/cp/two.bin", content)) == 3)
    (rig.place / "not.bin").write_bytes(b"x" * len(content))
    cp("file:not.bin", f"{TOP}/cp/two.bin@disk:1", status=12)
    # A replica that is wrong is not taken, one that is gone neither.
    files = list(physical(rig, f"{TOP}/cp/two.bin").values())
    files[0].write_bytes(b"y" * len(content))
    files[1].unlink()
    told = cp("-f", f"{TOP}/cp/two.bin", "file:back.bin")
    expect("the right bytes", (rig.place / "back.bin").read_bytes() == content, told)
    files[2].unlink()
    cp("-f", f"{TOP}/cp/two.bin", "file:back.bin", status=None)
    expect("what was here stays if none is right", (rig.place / "back.bin").read_bytes() == content)
    expect("nothing half done is left", not list(rig.place.glob(".back.bin*")))
    cp("file:cp.bin", "file:not.bin", f"{TOP}/cp/")
    expect("into a directory", is_there(rig, f"{TOP}/cp/cp.bin") and is_there(rig, f"{TOP}/cp/not.bin"))
    cp("file:cp.bin", f"{TOP}/cp/a b?c.bin")
    cp(f"{TOP}/cp/a b?c.bin", "file:odd.bin")
    expect("an odd name", (rig.place / "odd.bin").read_bytes() == content)
    if f"{TOP}/d/all.zip" not in rig.contents:
        archives(rig)
    cp(f"{TOP}/d/side.txt", "file:side.txt")
    expect("a member of an archive", (rig.place / "side.txt").read_text() == "from the inside")
    cp("file:cp.bin", "/not/mine.bin", status=16)
    cp(f"{TOP}/cp/none", "file:none", status=11)
    # On the socket it makes itself a token, and takes it back.
    rig.admin("cp", "file:" + str(rig.place / "cp.bin"), f"{TOP}/cp/admin.bin")
    expect("no token is left", "exacat cp" not in rig.admin("token", "ls"))


def sources(rig):
    """xrdcp --sources 2: two replicas at once, where their path is the LFN and where it is another."""
    need(rig)
    top, content = "/open", os.urandom(8_000_000)
    rig.admin("mkdir", "-p", top)
    words = ["register", "-p", f"{top}/f.bin", "--size", str(len(content)), "--checksum", f"adler32:{zlib.adler32(content):08x}"]
    for number in [1, 2]:
        place, port = rig.place / f"open{number}", free_port()
        (place / "files/open").mkdir(parents=True)
        (place / "files/open/f.bin").write_bytes(content)
        config = place / "xrootd.cf"
        config.write_text(f"all.adminpath {place}\nall.pidpath {place}\noss.localroot {place}/files\nall.export {top} r/o\n"
                          f"xrd.port {port}\n")
        rig.start_as_nobody([str(rig.xrd / "xrootd"), "-c", str(config), "-l", str(place / "log"), "-n", f"open{number}"],
                            f"open{number}", place, dict(os.environ))
        wait_until("it listens", lambda: is_open(port))
        rig.admin("se", "add", f"VO::OPEN::SE{number}", "--prefix", f"root://127.0.0.{number}:{port}")
        words += ["--se", f"VO::OPEN::SE{number}=root://127.0.0.{number}:{port}/{top}/f.bin"]
    rig.admin(*words)
    target = rig.place / "sources.bin"
    run(rig, "xrdcp", "-f", "-N", "--sources", "2", f"{rig.root}/{top}/f.bin", target)
    expect("the bytes", target.read_bytes() == content)
    # By GUID: both are opened by way of the catalogue.
    lfn = f"{TOP}/d/both.bin"
    run(rig, "xrdcp", "-f", "-N", "--sources", "2", f"{rig.root}/{lfn}", target)
    expect(f"the bytes of {lfn}", target.read_bytes() == rig.contents[lfn])


def root_opens(rig):
    """ROOT: TFile::Open, a tree, RDataFrame, TChain, GetPathInfo, a directory, TFile::Cp."""
    need(rig)
    if not os.environ.get("EXACAT_TEST_ROOT"):
        raise Left("ROOT's wheel has 250 MB: EXACAT_TEST_ROOT=1 installs and tries it")
    python = packages(rig, "--pre", "ROOT")
    if f"{TOP}/u/tree.root" not in rig.contents:
        raise Left("there is no tree: uproot was left out")
    run(rig, python, "-c", ROOT, rig.root, TOP, rig.place / "of_root.root", LD_LIBRARY_PATH="")


def identity(rig):
    """Without a token, with a wrong one, and with one for another part of the catalogue."""
    need(rig)
    fs(rig, "stat", "/", status=52, BEARER_TOKEN="")
    fs(rig, "stat", "/", status=52, BEARER_TOKEN="exa_nope")
    narrow = rig.admin("token", "issue", "--user", "jdoe", "--scope", f"{TOP}/d", "--lifetime", "1h").strip()
    copy(rig, f"{TOP}/d/both.bin", BEARER_TOKEN=narrow)
    fs(rig, "stat", TOP, status=NOT_DONE, BEARER_TOKEN=narrow)
    fs(rig, "mkdir", f"{TOP}/d/x", status=NOT_DONE, BEARER_TOKEN=narrow)
    # A client that can do TLS is asked to, also where the URL does not say so.
    run(rig, "xrdfs", f"root://localhost:{rig.xrootd_port}", "stat", "/")


def redirected(port, token, lfn, fields="", trust=None):
    """Where a client is sent that opens a file: what the protocol says, in 40 lines."""
    connection = socket.create_connection(("localhost", port), 30)

    def exchange(request, body, carried=b""):
        connection.sendall(struct.pack(">HH", 1, request) + body.ljust(16, b"\0") + struct.pack(">i", len(carried)) + carried)
        return receive()

    def receive():
        head = b""
        while len(head) < 8:
            head += connection.recv(8 - len(head)) or exit_early()
        _, status, length = struct.unpack(">HHI", head)
        carried = b""
        while len(carried) < length:
            carried += connection.recv(length - len(carried)) or exit_early()
        return status, carried

    def exit_early():
        raise Failed("the connection is gone")

    connection.sendall(HANDSHAKE)
    receive()
    exchange(3006, struct.pack(">IB", 0x511, 6))
    context = ssl.create_default_context(cafile=trust)
    connection = context.wrap_socket(connection, server_hostname="localhost")
    exchange(3007, struct.pack(">I8s", os.getpid(), b"script"))
    shown = token.encode() + b"\0"
    status, told = exchange(3000, b"\0" * 12 + b"ztn\0", b"ztn\0\0T\0\0" + struct.pack(">H", len(shown)) + shown)
    if status != 0:
        raise Failed(f"not let in: {told}")
    status, told = exchange(3010, struct.pack(">HH", 0, 0x10), f"{lfn}?{fields}".encode())
    connection.close()
    if status != 4004:
        raise Failed(f"no redirection: {status} {told}")
    return told[4:].decode()


def data_servers(rig):
    """Data servers refuse a token that is missing, expired, tampered with, or for another path."""
    need(rig)
    trust = str(rig.data / "server.crt")
    url = redirected(rig.xrootd_port, rig.user_token, f"{TOP}/d/both.bin", trust=trust)
    other = redirected(rig.xrootd_port, rig.user_token, f"{TOP}/d/hello world.txt", trust=trust)

    def read(url):
        words = ["xrdcp", "-f", "-N", url, rig.place / "got"]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE,
                              env={**rig.xrd_environment, "BEARER_TOKEN": ""}, cwd=rig.place)
        return done.returncode == 0

    place, fields = url.split("?", 1)
    token = fields.split("authz=Bearer%20")[1].split("&")[0]
    others = other.split("authz=Bearer%20")[1].split("&")[0]
    expect("the right one is let in", read(url), url)
    expect("none is not", not read(place))
    head, claims, signature = token.split(".")
    expect("a tampered one is not", not read(url.replace(token, f"{head}.{claims}.{signature[:-4]}AAAA")))
    expect("an unsigned one is not", not read(url.replace(token, f"{head}.{claims}.")))
    expect("that of another file is not", not read(url.replace(token, others)))
    # A server of a snapshot signs with the same keys; its envelopes end at once.
    rig.admin("snapshot", "create", "expired")
    port = free_port()
    rig.start([rig.exacat, "--data", str(rig.data), "serve", "--snapshot", "expired", "--no-socket", "--xrootd",
               f"127.0.0.1:{port}", "--envelope-issuer", rig.issuer, "--envelope-lifetime", "1s"], "exacat-expired")
    wait_until("the snapshot is served", lambda: is_open(port))
    short = redirected(port, rig.user_token, f"{TOP}/d/both.bin", trust=trust)
    time.sleep(5)
    expect("an expired one is not", not read(short), short)
    expect("the right one still is", read(url), url)


def fail_over(rig):
    """A replica that is gone, and a data server that is: the next one is read."""
    need(rig)
    lfn = f"{TOP}/over/gone.bin"
    put(rig, lfn, os.urandom(500_000), [0, 1])
    physical(rig, lfn)[0].unlink()
    copy(rig, lfn)
    down = f"{TOP}/over/down.bin"
    put(rig, down, os.urandom(500_000), [0, 1])
    physical(rig, lfn)[1].unlink()
    copy(rig, lfn, status=NOT_DONE)
    process = rig.storage_processes[0]
    process.terminate()
    process.wait(20)
    try:
        copy(rig, down)
        began = time.monotonic()
        for _ in range(4):
            copy(rig, down)
            # One client is believed once in a while.
            time.sleep(5)
        told = rig.admin("--json", "status")
        expect("clients came back", '"xrootd_retried"' in told or "xrootd_retried" in told, told)
        rig.fail_over_seconds = time.monotonic() - began
    finally:
        rig.start_storage(0)


def archives(rig):
    """A member of a ZIP archive, read out of it; by its own name it is said how."""
    need(rig)
    import io
    import zipfile
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("in/side.txt", "from the inside")
    put(rig, f"{TOP}/d/all.zip", buffer.getvalue(), [0, 1])
    rig.admin("register", f"{TOP}/d/side.txt", "--size", "15", "--member-of", f"{TOP}/d/all.zip?in/side.txt")
    copy(rig, f"{TOP}/d/all.zip", "--zip", "in/side.txt", content=b"from the inside")
    told = copy(rig, f"{TOP}/d/side.txt", status=NOT_DONE)
    expect("it is said how", "xrdcl.unzip=in/side.txt" in told, told)


def gfal(rig):
    """gfal2: ls, stat, sum, copy both ways, mkdir, rename, rm."""
    need(rig)
    if not shutil.which("gfal-ls", path=rig.xrd_environment["PATH"]):
        raise Left("gfal2 is not installed (Debian: gfal2-util-scripts gfal2-plugin-xrootd gfal2-plugin-file)")
    python = {"GFAL_PYTHONBIN": "/usr/bin/python3"}
    root = f"root://localhost:{rig.xrootd_port}/"
    lfn = f"{TOP}/d/both.bin"
    adler = f"{zlib.adler32(rig.contents[lfn]):08x}"
    expect("gfal-ls", "both.bin" in run(rig, "gfal-ls", "-l", f"{root}{TOP}/d", **python))
    expect("gfal-stat", str(len(rig.contents[lfn])) in run(rig, "gfal-stat", f"{root}{lfn}", **python))
    expect("gfal-sum", adler in run(rig, "gfal-sum", f"{root}{lfn}", "ADLER32", **python))
    run(rig, "gfal-mkdir", f"{root}{TOP}/g", **python)
    run(rig, "gfal-rename", f"{root}{TOP}/g", f"{root}{TOP}/h", **python)
    run(rig, "gfal-rm", "-r", f"{root}{TOP}/h", **python)
    target = rig.place / "gfal-got"
    run(rig, "gfal-copy", "-f", f"{root}{lfn}", f"file://{target}", **python)
    expect("gfal-copy", target.read_bytes() == rig.contents[lfn])
    content = os.urandom(300_000)
    (rig.place / "gfal.bin").write_bytes(content)
    written = f"{TOP}/gfal/new.bin"
    run(rig, "gfal-copy", "-p", f"file://{rig.place}/gfal.bin", f"{root}{written}", **python)
    expect("gfal-copy to the catalogue", is_there(rig, written))
    known(rig, written, content)
    other = os.urandom(1000)
    (rig.place / "gfal-other").write_bytes(other)
    run(rig, "gfal-copy", f"file://{rig.place}/gfal-other", f"{root}{written}", status=None, **python)
    known(rig, written, content)
    # Told to replace it, it removes what is there first.
    run(rig, "gfal-copy", "-f", f"file://{rig.place}/gfal-other", f"{root}{written}", **python)
    expect("gfal-copy over what was there", is_there(rig, written))
    known(rig, written, other)


PYTHON = """
import sys
from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags, QueryCode
root, top, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
fs = client.FileSystem(root)
def good(answer):
    status, found = answer
    assert status.ok, status.message
    return found
names = {entry.name: entry.statinfo for entry in good(fs.dirlist(top + "/d", DirListFlags.STAT))}
assert names["both.bin"].size == size, names
assert good(fs.stat(top + "/d/both.bin")).size == size
assert len(list(good(fs.locate(top + "/d/both.bin", OpenFlags.NONE)))) == 2
assert b"adler32" in good(fs.query(QueryCode.CHECKSUM, top + "/d/both.bin"))
assert not fs.stat("/nope")[0].ok
good(fs.mkdir(top + "/py")); good(fs.mv(top + "/py", top + "/py2")); good(fs.rmdir(top + "/py2"))
with client.File() as file:
    status, _ = file.open(root + "/" + top + "/d/both.bin", OpenFlags.READ)
    assert status.ok, status.message
    assert len(good(file.read(0, 1000))) == 1000
    assert len(good(file.vector_read([(0, 10), (size - 10, 10)])).chunks) == 2
print("python says it is fine", client.__name__)
"""

WRITING = """
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
root, top = sys.argv[1], sys.argv[2]
with client.File() as file:
    url = root + "/" + top + "/py/written.bin?oss.asize=1000"
    status, _ = file.open(url, OpenFlags.NEW | OpenFlags.MAKEPATH)
    assert status.ok, status.message
    assert file.write(b"p" * 1000)[0].ok
fs = client.FileSystem(root)
status, found = fs.stat(top + "/py/written.bin")
assert status.ok and found.size == 1000, status.message
with client.File() as file:
    assert not file.open(root + "/" + top + "/py/none.bin", OpenFlags.NEW)[0].ok
    assert not file.open(root + "/" + top + "/py/written.bin", OpenFlags.UPDATE)[0].ok
process = client.CopyProcess()
process.add_job(sys.argv[3], root + "/" + top + "/py/copied.bin")
process.prepare()
status, _ = process.run()
assert status.ok, status.message
assert fs.stat(top + "/py/copied.bin")[0].ok
print("python writes", client.__name__)
"""

ROOT = """
import sys, ROOT
root, top = sys.argv[1], sys.argv[2]
url = root + "/" + top + "/u/tree.root"
# Else it takes what a server on the same machine has for files of its own.
ROOT.gEnv.SetValue("Path.ForceRemote", 1)
file = ROOT.TFile.Open(url)
assert file and not file.IsZombie()
tree = file.Get("tree")
assert tree.GetEntries() == 1000, tree.GetEntries()
assert sum(int(one.x) for one in tree) == 499500
assert ROOT.RDataFrame("tree", url).Sum("x").GetValue() == 499500
chain = ROOT.TChain("tree")
assert chain.Add(url) == 1 and chain.GetEntries() == 1000
# 0 for what is there. (AccessPathName says of anything that it is there, also with a stock server.)
about = ROOT.FileStat_t()
assert ROOT.gSystem.GetPathInfo(url, about) == 0 and about.fSize > 0
assert ROOT.gSystem.GetPathInfo(url + ".none", about) == 1
directory = ROOT.gSystem.OpenDirectory(root + "/" + top + "/u")
assert ROOT.gSystem.GetDirEntry(directory) == "tree.root"
ROOT.gSystem.FreeDirectory(directory)
assert ROOT.TFile.Cp(url, sys.argv[3])
copied = ROOT.TFile.Open(sys.argv[3])
assert copied.Get("tree").GetEntries() == 1000
# Of what is not there, and of a file whose size is not said, an error and no file.
for name, option in [("none.root", "READ"), ("new.root", "CREATE")]:
    try:
        assert not ROOT.TFile.Open(root + "/" + top + "/u/" + name, option)
    except OSError as error:
        print("as it should be:", error)
print("ROOT says it is fine", ROOT.gROOT.GetVersion(), type(file))
"""

# ROOT's wheel has 250 MB.
PACKAGES_SECONDS = 1800
UPROOT = """
import sys, fsspec, uproot
root, top = sys.argv[1], sys.argv[2]
fs = fsspec.core.url_to_fs(root + "/" + top)[0]
names = [entry["name"] for entry in fs.ls(top + "/u")]
assert any(name.endswith("tree.root") for name in names), names
assert fs.info(top + "/u/tree.root")["size"] > 0
with uproot.open(root + "/" + top + "/u/tree.root") as file:
    assert file["tree"]["x"].array(library="np").sum() == 499500
print("uproot says it is fine", uproot.__version__)
"""


def packages(rig, *names):
    install(rig.venv, names, PACKAGES_SECONDS)
    return rig.venv / "bin/python"


def python_client(rig):
    """python XRootD of PyPI: dirlist, stat, locate, query, mkdir, mv, open, read, vector_read."""
    need(rig)
    python = packages(rig, "xrootd")
    size = len(rig.contents[f"{TOP}/d/both.bin"])
    run(rig, python, "-c", PYTHON, rig.root, TOP, size, LD_LIBRARY_PATH="")
    content = os.urandom(70_000)
    (rig.place / "py.bin").write_bytes(content)
    run(rig, python, "-c", WRITING, rig.root, TOP, rig.place / "py.bin", LD_LIBRARY_PATH="")
    known(rig, f"{TOP}/py/copied.bin", content)


def uproot_reads(rig):
    """uproot with fsspec-xrootd: ls, info, a tree read through a redirection."""
    need(rig)
    python = packages(rig, "uproot", "fsspec-xrootd", "xrootd", "numpy")
    tree = rig.place / "tree.root"
    write = "import sys, numpy, uproot\nwith uproot.recreate(sys.argv[1]) as f: f.mktree('tree', {'x': numpy.int64}).extend({'x': numpy.arange(1000)})"
    run(rig, python, "-c", write, tree, LD_LIBRARY_PATH="")
    put(rig, f"{TOP}/u/tree.root", tree.read_bytes(), [0, 1])
    run(rig, python, "-c", UPROOT, rig.root, TOP, LD_LIBRARY_PATH="")


def xcache(rig):
    """An XCache whose origin is the catalogue: known by its address; a miss, a hit, a checksum, a replica that is gone."""
    need(rig)
    library = pathlib.Path(rig.xrootd_root or "/") / "usr/lib/x86_64-linux-gnu"
    if not (library / "libXrdPfc-5.so").exists() or not (library / "libXrdPss-5.so").exists():
        raise Left("XCache is not installed (Debian: xrootd-server-plugins)")
    rig.admin("user", "add", "cache", "--subject", "host:127.0.0.1")
    port, place = free_port(), rig.place / "xcache"
    for name in ["ns", "data", "meta", "admin"]:
        (place / name).mkdir(parents=True)
    config = place / "xcache.cf"
    config.write_text(f"""xrd.port {port}
all.role server
all.export {TOP}
all.adminpath {place}/admin
all.pidpath {place}/admin
oss.localroot {place}/ns
oss.space data {place}/data
oss.space meta {place}/meta
ofs.osslib {library}/libXrdPss.so
pss.cachelib {library}/libXrdPfc.so
pss.origin localhost:{rig.xrootd_port}
pfc.spaces data meta
pfc.ram 1g
pfc.blocksize 1M
pfc.prefetch 0
pfc.diskusage 0.98 0.99
xrootd.async off
xrootd.chksum max 4 adler32
ofs.ckslib * {library}/libXrdPss.so
""")
    rig.start_as_nobody([str(rig.xrd / "xrootd"), "-c", str(config), "-l", str(place / "log"), "-n", "xcache"], "xcache",
                        place, dict(os.environ, **IMPATIENT, **({"LD_LIBRARY_PATH": str(library)} if rig.xrootd_root else {})))
    wait_until("the XCache listens", lambda: is_open(port))
    root = f"root://localhost:{port}"
    lfn = f"{TOP}/x/cached.bin"
    put(rig, lfn, os.urandom(2_500_000), [0, 1])
    expect("stat", f"Size:   {len(rig.contents[lfn])}" in run(rig, "xrdfs", root, "stat", lfn))
    expect("ls", lfn in run(rig, "xrdfs", root, "ls", "-l", f"{TOP}/x"))
    copy(rig, lfn, root=root)
    for path in physical(rig, lfn).values():
        path.unlink()
    # Its bytes are nowhere else any more.
    copy(rig, lfn, root=root)
    other = f"{TOP}/x/over.bin"
    put(rig, other, os.urandom(1_500_000), [0, 1])
    adler = f"{zlib.adler32(rig.contents[other]):08x}"
    physical(rig, other)[0].unlink()
    copy(rig, other, root=root)
    expect("checksum", adler in run(rig, "xrdfs", root, "query", "checksum", other))
    # Known by its address, and by no token, over plain TCP.
    run(rig, "xrdfs", f"root://localhost:{rig.xrootd_port}", "stat", "/", BEARER_TOKEN="")


TRIED = [xrdfs_names, tls_answers, xrdcp_reads, xrdcp_writes, refused, directories, identity, data_servers, archives, exacat_cp, sources, fail_over, gfal,
         python_client, uproot_reads, root_opens, xcache]

if __name__ == "__main__":
    sys.exit("run test-clients.py")
