"""What `make test-clients` tries with clients of HTTP and WebDAV: curl, davix, gfal2, xrdcp over HTTP, rclone, cadaver,
Python's requests, fsspec and webdavclient3, and litmus; against stock xrootd servers with HTTPS and third-party copies,
which let in by the tokens of redirections only.

`test-clients.py` runs these functions, in this order, each with the rig of everything that runs. docs/compat/webdav.md has
the table of clients and operations.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.request
import zlib

import clients_of_xrootd
from clients_rig import PATIENCE, Failed, Left, expect, free_port, is_open, wait_until

TOP = "/vo"
ROOT_AND_WEB, WEB, ROOT = "VO::BOTH::SE", "VO::WEB::SE", "VO::ROOT::SE"
LOG = os.environ.get("EXACAT_TEST_LOG", "info")
RELAY_BYTES = 16 << 20
# Any status but 0.
FAILURE = "a failure"
GFAL = {"GFAL_PYTHONBIN": "/usr/bin/python3"}


class Web:
    """A catalogue with HTTP, and its storage elements."""

    def __init__(self, rig):
        self.rig = rig
        self.place = rig.place / "http"
        self.place.mkdir()
        self.data = self.place / "data"
        self.elements = {}
        self.certificates()
        self.serve()

    def certificates(self):
        """An authority, and a certificate of this host for the catalogue and the storage elements."""
        self.trust = self.place / "trust"
        self.trust.mkdir()
        self.ca, self.certificate, self.key = (self.place / name for name in ["ca.pem", "host.pem", "host.key"])
        run = self.rig.run
        run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/O=Grid/CN=Web CA",
             "-keyout", str(self.place / "ca.key"), "-out", str(self.ca)])
        run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/O=Grid/CN=localhost", "-keyout", str(self.key),
             "-out", str(self.place / "host.csr")])
        extensions = self.place / "extensions"
        extensions.write_text("subjectAltName = DNS:localhost,IP:127.0.0.1\nbasicConstraints = CA:FALSE\n")
        run(["openssl", "x509", "-req", "-extfile", str(extensions), "-in", str(self.place / "host.csr"), "-CA", str(self.ca),
             "-CAkey", str(self.place / "ca.key"), "-CAcreateserial", "-days", "2", "-out", str(self.certificate)])
        name = run(["openssl", "x509", "-in", str(self.ca), "-noout", "-hash"]).strip()
        shutil.copy(self.ca, self.trust / f"{name}.0")
        for path in [self.key, self.certificate, self.ca]:
            os.chmod(path, 0o600)

    def serve(self):
        self.port = free_port()
        self.issuer = f"https://localhost:{self.port}"
        self.rig.start([self.rig.exacat, "--data", str(self.data), "serve", "--listen", "none", "--http",
                        f"127.0.0.1:{self.port}", "--http-plain", "--anonymous-reads", "--storage-ca", str(self.ca),
                        "--certificate", str(self.certificate), "--key", str(self.key),
                        "--envelope-issuer", self.issuer, "--log", LOG], "exacat-http")
        wait_until("exacat serves HTTP", lambda: (self.data / "server.json").exists())
        self.admin("user", "add", "jdoe")
        self.admin("mkdir", "-p", TOP)
        self.admin("chown", "jdoe:jdoe", TOP)
        self.token = self.admin("token", "issue", "--user", "jdoe", "--write", "--lifetime", "1h").strip()
        self.url = f"https://localhost:{self.port}/dav{TOP}"
        self.davs = f"davs://localhost:{self.port}/dav{TOP}"
        self.plain = f"http://localhost:{self.port}/dav{TOP}"
        self.home = self.place / "home"
        self.home.mkdir()
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8",
                            "X509_CERT_DIR": str(self.trust), "BEARER_TOKEN": self.token}

    def admin(self, *words):
        return self.rig.run([self.rig.exacat, "--data", str(self.data), *words])

    def storage(self):
        """Stock xrootd servers: one for root:// and HTTPS, one known by HTTPS only, one by root:// only."""
        library = pathlib.Path(self.rig.xrootd_root or "/") / "usr/lib/x86_64-linux-gnu"
        for name in ["libXrdHttp-5.so", "libXrdHttpTPC-5.so", "libXrdAccSciTokens-5.so"]:
            if not (library / name).exists():
                raise Left(f"{name} is not installed (Debian: xrootd-server-plugins, xrootd-scitokens-plugins)")
        cache = self.place / "cache" / "scitokens"
        cache.mkdir(parents=True)
        self.keys_into(cache)
        tokens = self.place / "scitokens.cfg"
        tokens.write_text(f"[Global]\naudience = https://wlcg.cern.ch/jwt/v1/any\n\n[Issuer exacat]\n"
                          f"issuer = {self.issuer}\nbase_path = /\n")
        for number, name in enumerate([ROOT_AND_WEB, WEB, ROOT], 1):
            place, root, web = self.place / f"element{number}", free_port(), free_port()
            (place / "files/data").mkdir(parents=True)
            (place / "trust").mkdir()
            for path in self.trust.iterdir():
                shutil.copy(path, place / "trust")
            for path in [self.certificate, self.key]:
                shutil.copy(path, place)
                os.chmod(place / path.name, 0o600)
            (place / "xrootd.cf").write_text(f"""all.adminpath {place}
all.pidpath {place}
oss.localroot {place}/files
all.export /data
xrd.port {root}
xrd.protocol http:{web} {library}/libXrdHttp.so
http.exthandler xrdtpc {library}/libXrdHttpTPC.so
http.header2cgi Authorization authz
http.selfhttps2http no
xrd.tls {place}/host.pem {place}/host.key
xrd.tlsca certdir {place}/trust
xrootd.chksum max 4 adler32 md5 crc32c
xrootd.async off
ofs.authorize
ofs.authlib {library}/libXrdAccSciTokens-5.so config={tokens}
""")
            environment = dict(os.environ, XDG_CACHE_HOME=str(self.place / "cache"), X509_CERT_DIR=str(place / "trust"))
            environment.pop("BEARER_TOKEN", None)
            for above in [self.place, self.rig.place]:
                os.chmod(above, 0o755)
            if os.geteuid() == 0:
                for path in [self.place / "cache", *(self.place / "cache").rglob("*")]:
                    os.chown(path, 65534, 65534)
            binary = pathlib.Path(self.rig.xrootd_root or "/") / "usr/bin/xrootd"
            self.rig.start_as_nobody([str(binary), "-c", str(place / "xrootd.cf"), "-l", str(place / "log"), "-n", f"e{number}"],
                                     f"element{number}", place, environment)
            wait_until(f"{name} listens", lambda: is_open(web) and is_open(root))
            prefix, https = f"root://localhost:{root}//data", f"https://localhost:{web}/data"
            words = {ROOT_AND_WEB: ["--prefix", prefix, "--https", https], WEB: ["--prefix", https],
                     ROOT: ["--prefix", prefix]}[name]
            # Uploads go to the first kind, unless a test wants another one.
            self.admin("se", "add", name, *words, "--qos", "disk" if name == ROOT_AND_WEB else "other")
            self.elements[name] = place

    def keys_into(self, cache):
        """The public keys where the plug-in keeps what it fetched."""
        trust = ssl.create_default_context(cafile=str(self.ca))
        keys = json.load(urllib.request.urlopen(f"{self.issuer}/.well-known/jwks.json", context=trust))
        later = int(time.time()) + 24 * 3600
        with contextlib.closing(sqlite3.connect(cache / "scitokens_cpp.sqllite")) as database:
            database.execute("CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)")
            entry = json.dumps({"jwks": keys, "expires": later, "next_update": later})
            database.execute("INSERT INTO keycache VALUES (?, ?)", (self.issuer, entry))
            database.commit()

    # ---- what the tests use ----

    def run(self, *words, status=0, stdin=None, **environment):
        words = [str(word) for word in words]
        if not shutil.which(words[0], path=self.environment["PATH"]):
            raise Left(f"{words[0]} is not installed")
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, input=stdin,
                              env={**self.environment, **environment}, cwd=self.home)
        wrong = done.returncode == 0 if status == FAILURE else done.returncode != status
        if status is not None and wrong:
            shown = " ".join("TOKEN" if self.token in word else word for word in words)
            raise Failed(f"{shown}: status {done.returncode} in place of {status}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def file(self, name, size_or_content):
        content = size_or_content if isinstance(size_or_content, bytes) else os.urandom(size_or_content)
        (self.home / name).write_bytes(content)
        return self.home / name, content

    def stat(self, name):
        """The catalogue's entry, or nothing."""
        command = [self.rig.exacat, "--data", str(self.data), "--json", "stat", f"{TOP}/{name}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def known(self, name, content, replicas=1):
        """A file is in the catalogue as it is, with its bytes on its storage elements."""
        wait_until(f"{name} is in the catalogue", lambda: self.stat(name) is not None)
        entry = self.stat(name)
        expect(f"the size of {name}", entry["size"] == len(content), entry)
        if content:
            expect(f"the checksum of {name}", f"adler32:{zlib.adler32(content):08x}" in entry["checksums"], entry)
        places = json.loads(self.admin("--json", "whereis", f"{TOP}/{name}"))["replicas"]
        expect(f"the replicas of {name}", len(places) == replicas, places)
        for place in places:
            path = self.elements[place["se"]] / "files/data" / re.split("/+data/", place["pfn"], maxsplit=1)[1]
            expect(f"the bytes of {name} on {place['se']}", path.read_bytes() == content)
        return sorted(place["se"] for place in places)

    def absent(self, name):
        """A name is not there, nothing is reserved for it, and it never was."""
        expect(f"{name} is not there", self.stat(name) is None)
        expect(f"nothing is reserved for {name}", f"{TOP}/{name} " not in self.admin("upload", "ls") + " ")
        expect(f"{name} never was", f"{TOP}/{name}" not in self.admin("trash", "ls"))

    def put(self, name, content, se=ROOT_AND_WEB):
        """A file by curl, on a given storage element."""
        path, content = self.file("put.bin", content)
        with self.uploads_to(se):
            self.curl("-T", path, f"{self.url}/{name}")
            self.known(name, content)
        return content

    @contextlib.contextmanager
    def uploads_to(self, se):
        """New files go to one storage element."""
        for other in self.elements:
            self.admin("se", "set", other, "--qos", "disk" if other == se else "other")
        yield
        for other in self.elements:
            self.admin("se", "set", other, "--qos", "disk" if other == ROOT_AND_WEB else "other")

    def curl(self, *words, status=0):
        # Over HTTP/2 curl waits for no 100 Continue, so that its uploads are relayed.
        words = ["--cacert", self.ca, "--oauth2-bearer", self.token, *words]
        return self.run("curl", "-sS", "-L", "--http1.1", "--fail", *words, status=status)

    def asked(self, method, name, *headers):
        """Status, headers and body of a request by curl, without redirections."""
        words = ["curl", "-sS", "-i", "--http1.1", "--cacert", str(self.ca), "--oauth2-bearer", self.token, "-X", method]
        words += ["-I"] if method == "HEAD" else []
        words += [word for header in headers for word in ["-H", header]]
        told = self.run(*words, f"{self.url}/{name}")
        head, _, body = told.replace("\r", "").partition("\n\n")
        lines = head.split("\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        return int(lines[0].split()[1]), fields, body


def need(rig):
    if getattr(rig, "web", None) is None:
        web = Web(rig)
        web.storage()
        rig.web = web
    return rig.web


# ---- what is tried -------------------------------------------------------------------------------------------------------


def http_curl(rig):
    """curl: get, put (by redirection and relayed), ranges, digests, metalink, every kind of storage element."""
    web = need(rig)
    path, content = web.file("a.bin", 20_000_000)
    web.curl("-T", path, f"{web.url}/curl.bin")
    expect("it is on the storage element of both kinds", web.known("curl.bin", content) == [ROOT_AND_WEB])
    web.curl("-o", "back.bin", f"{web.url}/curl.bin")
    expect("the same bytes", (web.home / "back.bin").read_bytes() == content)
    web.curl("-r", "1000-1999", "-o", "part.bin", f"{web.url}/curl.bin")
    expect("a range", (web.home / "part.bin").read_bytes() == content[1000:2000])
    status, head, _ = web.asked("HEAD", "curl.bin", "Want-Digest: adler32, foo", "Want-Repr-Digest: adler=5")
    expect("HEAD", status == 200 and head["content-length"] == str(len(content)), head)
    expect("Digest", head["digest"] == f"adler32={zlib.adler32(content):08x}", head)
    # The one proof is good for several requests, such as those of a player that seeks.
    status, head, _ = web.asked("GET", "curl.bin")
    place = re.search(r"(?i)^location: (\S+)", web.run(
        "curl", "-sS", "-i", "--cacert", web.ca, "--oauth2-bearer", web.token, f"{web.url}/curl.bin"), re.M)[1]
    expect("a proof in the redirection", status == 307 and "?authz=Bearer%20" in place, head)
    for part in ["0-9", "10-19"]:
        web.run("curl", "-sS", "--fail", "--cacert", web.ca, "-r", part, place, "-o", "part.bin")
    bare = place.split("?")[0]
    web.run("curl", "-sS", "--fail", "--cacert", web.ca, bare, status=22)
    # An upload over a name that is taken changes nothing; one that fails leaves nothing.
    other, _ = web.file("other.bin", 1000)
    web.run("curl", "-sS", "--fail", "--http2", "--cacert", web.ca, "--oauth2-bearer", web.token, "-T", other,
            f"{web.url}/http2.bin")
    web.known("http2.bin", other.read_bytes())
    web.curl("-T", other, f"{web.url}/curl.bin", status=22)
    web.known("curl.bin", content)
    web.curl("-T", other, f"{web.url}/nowhere/x.bin", status=22)
    web.absent("nowhere/x.bin")
    web.curl("-T", other, "-H", "Digest: adler32=00000001", "-H", "Expect:", f"{web.url}/wrong.bin", status=22)
    web.absent("wrong.bin")
    # Without Expect the body is relayed, also of unknown length, up to a bound.
    for name, options in [("relayed.bin", ["-H", "Expect:"]),
                          ("chunked.bin", ["-H", "Expect:", "-H", "Transfer-Encoding: chunked"])]:
        web.curl("-T", other, *options, f"{web.url}/{name}")
        web.known(name, other.read_bytes())
    large, _ = web.file("large.bin", RELAY_BYTES + 1)
    for options in [["-H", "Expect:"], ["-H", "Expect:", "-H", "Transfer-Encoding: chunked"]]:
        told = web.run("curl", "-sS", "-i", "--http1.1", "--cacert", web.ca, "--oauth2-bearer", web.token, "-T", large, *options,
                       f"{web.url}/large.bin", status=None)
        expect("413, or a closed connection", " 413 " in told or "reset" in told or "Broken pipe" in told or "EOF" in told, told)
        web.absent("large.bin")
    exact, content = web.file("exact.bin", RELAY_BYTES)
    web.curl("-T", exact, "-H", "Expect:", f"{web.url}/exact.bin")
    web.known("exact.bin", content)
    (web.home / "empty.bin").write_bytes(b"")
    web.curl("-T", "empty.bin", f"{web.url}/empty.bin")
    web.known("empty.bin", b"")
    # A storage element that is known by HTTPS only, and one by root:// only.
    for se in [WEB, ROOT]:
        content = web.put(f"on-{se.split('::')[1]}.bin", 300_000, se)
        expect(f"on {se}", web.known(f"on-{se.split('::')[1]}.bin", content) == [se])
        web.curl("-o", "back.bin", f"{web.url}/on-{se.split('::')[1]}.bin")
        expect("the same bytes", (web.home / "back.bin").read_bytes() == content)
    status, head, body = web.asked("GET", "curl.bin?metalink")
    expect("metalink", status == 200 and body.count("<url") == 2 and "root://" in body, body)


def http_curl_names(rig):
    """curl: MKCOL, MOVE, COPY, DELETE, PROPFIND, PROPPATCH, OPTIONS, names that need escapes."""
    web = need(rig)
    name = "n%C3%A9%20%25%26%3F%23%3C"
    for method, path, headers, wanted in [
        ("OPTIONS", "", [], 200), ("MKCOL", "n", [], 201), ("MKCOL", "n", [], 405), ("MKCOL", f"n/{name}", [], 201),
        ("PROPFIND", "n", ["Depth: 1"], 207), ("PROPFIND", "n", ["Depth: infinity"], 207), ("PROPFIND", "n", [], 403),
        ("MOVE", f"n/{name}", [f"Destination: {web.url}/n/moved"], 201),
        ("COPY", "n/", [f"Destination: {web.url}/m/"], 201), ("COPY", "n/", [f"Destination: {web.url}/m/", "Overwrite: F"], 412),
        ("LOCK", "n", [], 405), ("DELETE", "m", [], 204), ("DELETE", "n", [], 204), ("DELETE", "n", [], 404),
    ]:
        status, head, body = web.asked(method, path, *headers)
        expect(f"{method} {path}: {wanted}", status == wanted, f"{status} {head} {body}")
        if method == "OPTIONS":
            expect("no locks", head["dav"] == "1" and "lock" not in head["allow"], head)


def http_davix(rig):
    """davix: put, get, ls, ls -l, mkdir, mv, rm; it sends the user's token on, and fails over by metalink."""
    web = need(rig)
    options = ["--capath", str(web.trust), "-H", f"Authorization: Bearer {web.token}"]
    path, content = web.file("d.bin", 5_000_000)
    web.run("davix-mkdir", *options, f"{web.url}/davix")
    web.run("davix-put", *options, path, f"{web.url}/davix/d.bin")
    web.known("davix/d.bin", content)
    web.run("davix-get", *options, f"{web.url}/davix/d.bin", web.home / "d.back")
    expect("the same bytes", (web.home / "d.back").read_bytes() == content)
    expect("ls", "d.bin" in web.run("davix-ls", *options, f"{web.url}/davix/"))
    expect("ls -l", str(len(content)) in web.run("davix-ls", "-l", *options, f"{web.url}/davix/"))
    # It reports a failure of any MOVE, also against XrdHttp: only the effect counts.
    web.run("davix-mv", *options, f"{web.url}/davix/d.bin", f"{web.url}/davix/e.bin", status=None)
    web.known("davix/e.bin", content)
    expect("moved away", web.stat("davix/d.bin") is None)
    other, _ = web.file("other.bin", 1000)
    web.run("davix-put", *options, other, f"{web.url}/davix/e.bin", status=None)
    web.known("davix/e.bin", content)
    # The first removal after a failed upload may be a client that cleans up.
    web.run("davix-rm", *options, f"{web.url}/davix/e.bin", status=FAILURE)
    web.known("davix/e.bin", content)
    web.run("davix-rm", *options, f"{web.url}/davix/e.bin")
    expect("removed", web.stat("davix/e.bin") is None)
    web.run("davix-get", *options, f"{web.url}/davix/e.bin", web.home / "none", status=FAILURE)
    # The first replica is gone from its storage element: the other one is read.
    content = web.put("davix/two.bin", 100_000, WEB)
    status, _, body = web.asked("COPY", "davix/two.bin", f"Destination: {web.url}/davix/two.bin?se={ROOT_AND_WEB}")
    expect("a second replica", status == 201, body)
    web.known("davix/two.bin", content, replicas=2)
    replica = json.loads(web.admin("--json", "whereis", f"{TOP}/davix/two.bin"))["replicas"][0]
    broken = web.elements[replica["se"]] / "files/data" / re.split("/+data/", replica["pfn"], maxsplit=1)[1]
    aside = broken.with_suffix(".aside")
    broken.rename(aside)
    web.run("davix-get", *options, f"{web.url}/davix/two.bin", web.home / "two.back")
    expect("the other replica", (web.home / "two.back").read_bytes() == content)
    aside.rename(broken)


def http_gfal(rig):
    """gfal2: copy both ways, -K, sum, stat, ls, mkdir, rename, rm; third-party copies, pulled and pushed."""
    web = need(rig)
    path, content = web.file("g.bin", 3_000_000)
    gfal = lambda *words, **more: web.run(*words, **GFAL, **more)
    gfal("gfal-mkdir", "-p", f"{web.davs}/gfal/deep")
    gfal("gfal-copy", f"file://{path}", f"{web.davs}/gfal/g.bin")
    web.known("gfal/g.bin", content)
    gfal("gfal-copy", "-K", "ADLER32", f"file://{path}", f"{web.davs}/gfal/k.bin")
    web.known("gfal/k.bin", content)
    gfal("gfal-copy", "-f", f"{web.davs}/gfal/g.bin", f"file://{web.home}/g.back")
    expect("the same bytes", (web.home / "g.back").read_bytes() == content)
    expect("sum", f"{zlib.adler32(content):08x}" in gfal("gfal-sum", f"{web.davs}/gfal/g.bin", "ADLER32"))
    expect("stat", str(len(content)) in gfal("gfal-stat", f"{web.davs}/gfal/g.bin"))
    expect("ls", "g.bin" in gfal("gfal-ls", f"{web.davs}/gfal") and "deep" in gfal("gfal-ls", "-l", f"{web.davs}/gfal"))
    gfal("gfal-rename", f"{web.davs}/gfal/k.bin", f"{web.davs}/gfal/deep/k.bin")
    web.known("gfal/deep/k.bin", content)
    # Over what is there: refused; with -f it is removed first.
    other, changed = web.file("other.bin", 1000)
    gfal("gfal-copy", f"file://{other}", f"{web.davs}/gfal/g.bin", status=None)
    web.known("gfal/g.bin", content)
    gfal("gfal-copy", "-f", f"file://{other}", f"{web.davs}/gfal/g.bin")
    web.known("gfal/g.bin", changed)
    # A checksum that the client refuses.
    told = gfal("gfal-copy", "-K", "ADLER32:00000001", f"file://{path}", f"{web.davs}/gfal/wrong.bin", status=None)
    expect("gfal-copy refuses it", "checksum" in told.lower(), told)
    wait_until("it is not there", lambda: web.stat("gfal/wrong.bin") is None)
    for mode in ["pull", "push"]:
        gfal("gfal-copy", f"--copy-mode={mode}", f"{web.davs}/gfal/deep/k.bin", f"{web.davs}/gfal/{mode}.bin")
        web.known(f"gfal/{mode}.bin", content)
    gfal("gfal-rm", f"{web.davs}/gfal/deep/k.bin")
    expect("removed", web.stat("gfal/deep/k.bin") is None)
    gfal("gfal-rm", "-r", f"{web.davs}/gfal/deep")
    gfal("gfal-stat", f"{web.davs}/gfal/none", status=FAILURE)


def http_tpc(rig):
    """COPY between storage elements: pulled and pushed, with markers; a failed one leaves nothing."""
    web = need(rig)
    content = web.put("tpc.bin", 40_000_000, WEB)
    adler = f"{zlib.adler32(content):08x}"

    def copy(name, *headers):
        status, head, body = web.asked("COPY", name, "Credential: none", *headers)
        return status, head.get("content-type", ""), body

    for mode, name, header in [("pull", "pulled.bin", f"Source: {web.url}/tpc.bin"),
                               ("push", "tpc.bin", f"Destination: {web.url}/pushed.bin")]:
        status, kind, body = copy(name, header)
        expect(f"{mode}: markers and success", status == 202 and kind == "text/perf-marker-stream" and
               body.strip().endswith("success: Created"), f"{status} {kind} {body}")
        web.known(f"{mode}ed.bin", content)
    # Another replica of the same file.
    status, _, body = copy(f"tpc.bin?se={ROOT_AND_WEB}", f"Source: {web.url}/tpc.bin")
    expect("a replica is pulled", status == 202 and "success" in body, body)
    web.known("tpc.bin", content, replicas=2)
    status, _, body = copy(f"tpc.bin?se={ROOT_AND_WEB}", f"Source: {web.url}/tpc.bin")
    expect("not twice", status >= 400 or "failure" in body, f"{status} {body}")
    web.known("tpc.bin", content, replicas=2)
    # From a server that the catalogue does not know the file of, with the client's own access.
    place = re.search(r"(?i)^location: (\S+)", web.run(
        "curl", "-sS", "-i", "--cacert", web.ca, "--oauth2-bearer", web.token, f"{web.url}/tpc.bin"), re.M)[1]
    url, _, proof = place.partition("?authz=Bearer%20")
    status, _, body = copy("foreign.bin", f"Source: {url}", f"TransferHeaderAuthorization: Bearer {proof}")
    expect("pulled from elsewhere", status == 202 and "success" in body, f"{status} {body}")
    web.known("foreign.bin", content)
    status, _, body = copy("none.bin", f"Source: {url}")
    expect("not without access", status >= 400, f"{status} {body}")
    web.absent("none.bin")
    # A push to another server is sent on to the storage element with the file.
    status, head, body = web.asked("COPY", "tpc.bin", "Destination: https://elsewhere.example/x", "Credential: none")
    expect("sent on", status == 307 and "authz" in head["location"], f"{status} {head}")
    # The source is damaged on its storage element: the copy is not registered.
    content = web.put("damaged.bin", 1_000_000, WEB)
    replica = json.loads(web.admin("--json", "whereis", f"{TOP}/damaged.bin"))["replicas"][0]
    path = web.elements[WEB] / "files/data" / re.split("/+data/", replica["pfn"], maxsplit=1)[1]
    path.write_bytes(bytes(len(content)))
    status, _, body = copy("from-damaged.bin", f"Source: {web.url}/damaged.bin")
    expect("refused", "failure:" in body and "checksum" in body, f"{status} {body}")
    web.absent("from-damaged.bin")
    path.unlink()
    status, _, body = copy("from-damaged.bin", f"Source: {web.url}/damaged.bin")
    expect("refused", "failure:" in body or status >= 400, f"{status} {body}")
    web.absent("from-damaged.bin")
    expect(f"the checksum {adler}", adler in web.admin("--json", "stat", f"{TOP}/pulled.bin"))


def http_xrdcp(rig):
    """xrdcp over HTTP: reads, anonymously; it sends no token, so it writes nothing, and says nothing of it."""
    web = need(rig)
    if not pathlib.Path("/usr/lib/x86_64-linux-gnu/libXrdClHttp-5.so").exists():
        raise Left("xrdcp has no HTTP here (Debian: xrootd-client-http-plugins)")
    content = web.put("xrdcp.bin", 400_000)
    plugins = web.place / "plugins"
    plugins.mkdir(exist_ok=True)
    (plugins / "http.conf").write_text("url = http://*;https://*\nlib = libXrdClHttp.so\nenable = true\n")
    environment = {"XRD_PLUGINCONFDIR": str(plugins), **clients_of_xrootd.IMPATIENT}
    web.run("xrdcp", "-A", "-f", "-N", f"{web.url}/xrdcp.bin", "xrdcp.back", **environment)
    expect("the same bytes", (web.home / "xrdcp.back").read_bytes() == content)
    web.run("xrdcp", "-A", "-f", "-N", "put.bin", f"{web.url}/xrdcp-new.bin", status=None, **environment)
    web.absent("xrdcp-new.bin")


def http_rclone(rig):
    """rclone: ls, copy, sync, check, cat, rcat, mkdir, moveto, delete, purge; too large a body fails and harms nothing."""
    web = need(rig)
    (web.home / "rclone.conf").write_text(
        f"[x]\ntype = webdav\nurl = https://localhost:{web.port}/dav{TOP}\nvendor = other\nbearer_token = {web.token}\n")

    def rclone(*words, **more):
        return web.run("rclone", "--config", web.home / "rclone.conf", "--ca-cert", web.ca, "--retries", "1",
                       "--low-level-retries", "1", *words, **more)

    tree = web.home / "tree"
    for name in ["a.txt", "b/c.txt", "b/d é.txt"]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name * 100)
    rclone("mkdir", "x:rclone")
    rclone("copy", tree, "x:rclone")
    for name in ["a.txt", "b/c.txt", "b/d é.txt"]:
        web.known(f"rclone/{name}", (tree / name).read_bytes())
    listed = rclone("ls", "x:rclone")
    expect("ls", "b/d é.txt" in listed and len(listed.strip().split("\n")) == 3, listed)
    expect("cat", rclone("cat", "x:rclone/a.txt").endswith("a.txt" * 100))
    rclone("check", "--download", tree, "x:rclone")
    rclone("rcat", "x:rclone/rcat.txt", stdin="from a pipe")
    web.known("rclone/rcat.txt", b"from a pipe")
    rclone("copy", "x:rclone", web.home / "tree.back")
    expect("the same bytes", (web.home / "tree.back/b/c.txt").read_text() == "b/c.txt" * 100)
    rclone("moveto", "x:rclone/a.txt", "x:rclone/moved.txt")
    web.known("rclone/moved.txt", b"a.txt" * 100)
    # A copy in the catalogue, which the server makes.
    rclone("copyto", "x:rclone/moved.txt", "x:rclone/copied.txt")
    web.known("rclone/copied.txt", b"a.txt" * 100)
    # A changed file is not written over, and what rclone removes after its failure stays.
    (tree / "b/c.txt").write_text("changed, and of another length")
    rclone("sync", tree / "b", "x:rclone/b", status=FAILURE)
    web.known("rclone/b/c.txt", b"b/c.txt" * 100)
    # A file that goes is removed by sync.
    (tree / "b/c.txt").write_text("b/c.txt" * 100)
    (tree / "b/d é.txt").unlink()
    rclone("sync", "--size-only", tree / "b", "x:rclone/b")
    expect("sync removes", web.stat("rclone/b/d é.txt") is None)
    large, _ = web.file("large.bin", RELAY_BYTES + 1)
    rclone("copyto", large, "x:rclone/large.bin", status=FAILURE)
    web.absent("rclone/large.bin")
    rclone("delete", "x:rclone/b")
    expect("delete", web.stat("rclone/b/c.txt") is None)
    rclone("purge", "x:rclone")
    expect("purge", web.stat("rclone") is None)


def http_cadaver(rig):
    """cadaver: ls, mkcol, put, move, copy, propset, delete, rmcol; it follows no redirection, and gets relayed files."""
    web = need(rig)
    path, content = web.file("cadaver.txt", b"cadaver writes this")
    (web.home / ".netrc").write_text(f"machine localhost login jdoe password {web.token}\n")
    os.chmod(web.home / ".netrc", 0o600)
    web.put("cadaver-far.bin", 1000)

    def cadaver(*lines):
        return web.run("cadaver", f"{web.plain}/", stdin="\n".join([*lines, "quit", ""]), status=None)

    told = cadaver("mkcol cad", "cd cad", f"put {path} a.txt", "ls", "copy a.txt b.txt", "move b.txt c.txt",
                   "propset c.txt colour red", "propget c.txt colour")
    web.known("cad/a.txt", content)
    web.known("cad/c.txt", content)
    expect("ls", "a.txt" in told, told)
    expect("a property", "red" in told.split("propget")[-1] and "colour" in web.admin("tag", "get", f"{TOP}/cad/c.txt"), told)
    told = cadaver(f"get cadaver-far.bin {web.home}/cad.back")
    expect("a redirection is not followed, and said to be one", "redirect" in told.lower() or "307" in told, told)
    web.put("cadaver-near.bin", content, ROOT)
    cadaver(f"get cadaver-near.bin {web.home}/cad.near")
    expect("the same bytes", (web.home / "cad.near").read_bytes() == content)
    cadaver("delete cad/a.txt", "rmcol cad")
    expect("rmcol", web.stat("cad") is None)


PYTHON = """
import sys, zlib, os, requests
from requests.auth import AuthBase
url, ca, token, source = sys.argv[1:]
class Bearer(AuthBase):
    def __call__(self, request):
        request.headers["Authorization"] = "Bearer " + token
        return request
asking = requests.Session()
asking.verify, asking.auth = ca, Bearer()
content = open(source, "rb").read()
# The body comes at once: it is relayed.
answer = asking.put(url + "/py/requests.bin", data=open(source, "rb"))
assert answer.status_code == 201, (answer.status_code, answer.text)
answer = asking.get(url + "/py/requests.bin", headers={"Range": "bytes=5-9"})
assert answer.status_code == 206 and answer.content == content[5:10], answer
assert asking.get(url + "/py/requests.bin").content == content
assert int(asking.head(url + "/py/requests.bin").headers["Content-Length"]) == len(content)
assert asking.delete(url + "/py/none").status_code == 404
answer = asking.put(url + "/py/generated.bin", data=(part for part in [b"one", b"two"]))
assert answer.status_code == 201, answer.text
print("requests", requests.__version__)
"""

FSSPEC = """
import asyncio, ssl, sys, aiohttp, fsspec
url, ca, token, source = sys.argv[1:]
trust = ssl.create_default_context(cafile=ca)
async def client(**options):
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), **options)
fs = fsspec.filesystem("http", get_client=client, client_kwargs={"headers": {"Authorization": "Bearer " + token}})
content = open(source, "rb").read()
assert fs.info(url + "/py/requests.bin")["size"] == len(content)
assert fs.cat_file(url + "/py/requests.bin") == content
assert fs.cat_file(url + "/py/requests.bin", start=10, end=20) == content[10:20]
with fs.open(url + "/py/requests.bin") as file:
    file.seek(1000)
    assert file.read(10) == content[1000:1010]
print("fsspec", fsspec.__version__)
"""

WEBDAV = """
import sys, os
from webdav3.client import Client
url, ca, token, source = sys.argv[1:]
base, top = url.split("/dav/")
client = Client({"webdav_hostname": base, "webdav_root": "/dav/" + top, "webdav_token": token, "webdav_disable_check": True})
client.session.verify = ca
client.verify = ca
content = open(source, "rb").read()
client.mkdir("wd")
client.upload_sync(remote_path="wd/a.bin", local_path=source)
assert "a.bin" in client.list("wd"), client.list("wd")
assert int(client.info("wd/a.bin")["size"]) == len(content)
client.copy(remote_path_from="wd/a.bin", remote_path_to="wd/b.bin")
client.move(remote_path_from="wd/b.bin", remote_path_to="wd/c.bin")
client.download_sync(remote_path="wd/c.bin", local_path=source + ".wd")
assert open(source + ".wd", "rb").read() == content
client.clean("wd/a.bin")
assert "a.bin" not in client.list("wd")
print("webdavclient3")
"""

WEBDAV4 = """
import sys
from webdav4.fsspec import WebdavFileSystem
url, ca, token, source = sys.argv[1:]
fs = WebdavFileSystem(url, headers={"Authorization": "Bearer " + token}, verify=ca, follow_redirects=True)
content = open(source, "rb").read()
fs.mkdir("w4")
fs.upload(source, "w4/a.bin")
assert fs.info("w4/a.bin")["size"] == len(content)
assert [entry["name"] for entry in fs.ls("w4")] == ["w4/a.bin"]
fs.mv("w4/a.bin", "w4/b.bin")
fs.copy("w4/b.bin", "w4/c.bin")
assert fs.cat("w4/c.bin") == content
fs.rm("w4/c.bin")
print("webdav4")
"""


def http_python(rig):
    """Python: requests (get, ranges, put, a generator), fsspec http (info, cat, seek), webdavclient3 and webdav4."""
    web = need(rig)
    python = clients_of_xrootd.packages(rig, "requests", "fsspec", "aiohttp", "webdavclient3", "webdav4")
    path, content = web.file("py.bin", 200_000)
    web.asked("MKCOL", "py")
    environment = dict(os.environ, BEARER_TOKEN="", REQUESTS_CA_BUNDLE=str(web.ca), SSL_CERT_FILE=str(web.ca))
    failed = []
    for name, program in [("requests", PYTHON), ("fsspec", FSSPEC), ("webdavclient3", WEBDAV), ("webdav4", WEBDAV4)]:
        done = subprocess.run([str(python), "-c", program, web.url, str(web.ca), web.token, str(path)], capture_output=True,
                              text=True, env=environment, cwd=web.home, timeout=PATIENCE)
        if done.returncode != 0:
            failed.append(f"{name}: {done.stdout}{done.stderr}".replace(web.token, "TOKEN"))
    expect("Python clients", not failed, "\n".join(failed))
    web.known("py/requests.bin", content)
    web.known("py/generated.bin", b"onetwo")
    web.known("wd/c.bin", content)
    web.known("w4/b.bin", content)


def http_litmus(rig):
    """litmus: basic 16 of 16, copymove 13 of 13, props 30 of 30, http 4 of 4; locks are not offered."""
    web = need(rig)
    library = pathlib.Path("/usr/libexec/litmus")
    if not library.is_dir():
        raise Left("litmus is not installed")
    web.asked("MKCOL", "litmus")
    # neon, which litmus is made with, follows no redirection: the server relays what is on this storage element.
    with web.uploads_to(ROOT):
        for group, wanted in [("basic", 16), ("copymove", 13), ("props", 30), ("http", 4)]:
            place = web.place / f"litmus-{group}"
            place.mkdir()
            command = [str(library / group), "--htdocs", "/usr/share/litmus/htdocs", f"{web.plain}/litmus/", "jdoe", web.token]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=place, env=web.environment)
            passed = re.search(r"of (\d+) tests run: (\d+) passed, (\d+) failed", done.stdout)
            told = done.stdout.replace(web.token, "TOKEN")[-4000:]
            expect(f"litmus {group}: {wanted} of {wanted}", passed and passed.groups() == (str(wanted), str(wanted), "0"), told)


TRIED = [http_curl, http_curl_names, http_davix, http_gfal, http_tpc, http_xrdcp, http_rclone, http_cadaver, http_python,
         http_litmus]

if __name__ == "__main__":
    sys.exit("run test-clients.py")
