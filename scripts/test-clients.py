#!/usr/bin/env python3
"""`make test-clients`: drives the real alien.py against a server, interactive and scripted, and the clients of XRootD
(`clients_of_xrootd.py`), of HTTP (`clients_of_http.py`) and of InfluxDB (`clients_influx.py`), with stock xrootd servers as
storage elements if there are any. It installs what it needs into a temporary place and says in plain words what it left out.

Usage: test-clients.py EXACAT-BINARY [--keep] [--xrootd-root DIR] [--venv DIR] [--only TEXT] [--spark]
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

import clients_archive
import clients_influx
import clients_of_http
import clients_of_xrootd
import rest_schema
from clients_rig import PATIENCE, Failed, Left, expect, free_port, is_open, say, wait_until

HOME = "/alice/cern.ch/user/j/jdoe"
REFERENCE = "/alice/cern.ch/user/a/admin/referenceData"
SES = ["ALICE::TEST::SE1", "ALICE::TEST::SE2", "ALICE::CERN::EOS"]
UPSTREAM = "https://github.com/adriansev/jalien_py/archive/refs/heads/master.tar.gz"


class Rig:
    """Everything that runs, and where."""

    def __init__(self, exacat, place, xrootd_root, spark=False):
        self.exacat = exacat
        self.spark = spark
        self.place = pathlib.Path(place)
        self.xrootd_root = xrootd_root
        self.running = []
        self.client = None
        self.venv = self.place / "venv"
        self.storage = False
        self.ses = SES
        self.storage_commands, self.storage_processes = [], []
        self.data = self.place / "data"

    def start(self, command, name, **more):
        log = open(self.place / f"{name}.log", "wb")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **more)
        self.running.append(process)
        return process

    def stop(self):
        for process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def run(self, command, **more):
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def admin(self, *words):
        return self.run([self.exacat, "--data", str(self.data), *words])

    # ---- certificates -------------------------------------------------------------------------------------------------

    def certificates(self):
        """An authority as grids have it, and a user's certificate."""
        if not shutil.which("openssl"):
            raise Left("there is no openssl here to make certificates with")
        place = self.place / "certificates"
        place.mkdir()
        ca = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/O=Grid/CN=Test CA",
              "-keyout", str(place / "ca.key"), "-out", str(place / "ca.pem")]
        self.run(ca)
        self.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/O=Grid/CN=Jane Doe", "-keyout",
                  str(place / "user.key"), "-out", str(place / "user.csr")])
        extensions = place / "extensions"
        extensions.write_text("keyUsage = digitalSignature, keyEncipherment\nextendedKeyUsage = clientAuth\n")
        self.run(["openssl", "x509", "-req", "-extfile", str(extensions), "-in", str(place / "user.csr"), "-CA", str(place / "ca.pem"), "-CAkey",
                  str(place / "ca.key"), "-CAcreateserial", "-days", "2", "-out", str(place / "user.pem")])
        self.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/O=Grid/CN=Nobody",
                  "-keyout", str(place / "nobody.key"), "-out", str(place / "nobody.pem")])
        return place

    # ---- exacat -------------------------------------------------------------------------------------------------------

    def serve(self):
        certificates = self.certificates()
        self.port, self.xrootd_port = free_port(), free_port()
        self.issuer = f"https://localhost:{self.port}"
        # Each storage element has two servers over the same files: the first sends clients that ask for checksums to the
        # catalogue, the second tells them to the catalogue.
        self.se_ports = [(free_port(), free_port()) for _ in SES]
        checksums = []
        for number, (first, second) in enumerate(self.se_ports, 1):
            checksums += ["--xrootd-checksums", f"127.0.0.{number}:{first}=127.0.0.{number}:{second}"]
        self.start([self.exacat, "--data", str(self.data), "serve", "--listen", "none", "--jalien",
                    f"127.0.0.1:{self.port}", "--jalien-ca", str(certificates), "--envelope-issuer", self.issuer,
                    "--xrootd", f"127.0.0.1:{self.xrootd_port}", *checksums,
                    # Replicas are told apart by their hosts, and those have the same certificate here.
                    "--name", "127.0.0.2", "--name", "127.0.0.3"], "exacat")
        wait_until("exacat serves", lambda: (self.data / "server.json").exists())
        self.admin("user", "add", "jdoe", "--home", HOME, "--subject", "/O=Grid/CN=Jane Doe")
        for directory, owner in [(HOME, "jdoe"), ("/alice/cern.ch/user/a/admin", "admin")]:
            self.admin("mkdir", "-p", directory)
            if owner != "admin":
                self.admin("chown", owner, directory)
                self.admin("chgrp", owner, directory)
        self.certificate_place = certificates

    # ---- xrootd -------------------------------------------------------------------------------------------------------

    def xrootd(self):
        """Stock data servers that let in by the tokens in envelopes only."""
        root = pathlib.Path(self.xrootd_root or "/")
        binary = root / "usr/bin/xrootd"
        library = root / "usr/lib/x86_64-linux-gnu"
        plugin = library / "libXrdAccSciTokens-5.so"
        if not binary.exists() or not plugin.exists():
            raise Left("xrootd with its SciTokens plug-in is not installed (Debian: xrootd-server "
                       "xrootd-scitokens-plugins): files are neither written nor read")
        cache = self.place / "cache" / "scitokens"
        cache.mkdir(parents=True)
        self.keys_into(cache)
        self.scitokens = self.place / "scitokens.cfg"
        self.scitokens.write_text(f"[Global]\naudience = https://wlcg.cern.ch/jwt/v1/any\n\n[Issuer exacat]\n"
                                  f"issuer = {self.issuer}\nbase_path = /\n")
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.place / "cache"))
        if self.xrootd_root:
            environment["LD_LIBRARY_PATH"] = str(library)
        certificate, key = self.data / "server.crt", self.data / "server.key"
        for number, name in enumerate(SES, 1):
            (port, checksum_port), place = self.se_ports[number - 1], self.place / f"se{number}"
            (place / "files/data").mkdir(parents=True)
            config = place / "xrootd.cf"
            config.write_text(f"""all.adminpath {place}
all.pidpath {place}
oss.localroot {place}/files
all.export /data
xrd.port {port}
xrd.tls {certificate} {key}
xrd.tlsca noverify
xrootd.chksum max 2 md5 adler32
xrootd.redirect localhost:{self.xrootd_port} chksum
xrootd.async off
ofs.authorize
ofs.authlib {plugin} config={self.scitokens}
scitokens.trace all
""")
            second = self.place / f"se{number}-checksums"
            second.mkdir()
            (second / "xrootd.cf").write_text(f"""all.adminpath {second}
all.pidpath {second}
oss.localroot {place}/files
all.export /data
xrd.port {checksum_port}
xrootd.chksum max 2 md5 adler32
ofs.authorize
ofs.authlib {plugin} config={self.scitokens}
""")
            if os.geteuid() == 0:
                # It does not run as root, and reads no key of root's.
                for path in [certificate, key]:
                    copy = place / path.name
                    copy.write_bytes(path.read_bytes())
                    os.chmod(copy, 0o600)
                    config.write_text(config.read_text().replace(str(path), str(copy)))
            command = [str(binary), "-c", str(config), "-l", str(place / "xrootd.log"), "-n", f"se{number}"]
            self.storage_commands.append((command, f"xrootd{number}", place, environment, port))
            self.storage_processes.append(None)
            self.start_storage(number - 1)
            self.start_as_nobody([str(binary), "-c", str(second / "xrootd.cf"), "-l", str(second / "xrootd.log"), "-n",
                                  f"se{number}-checksums"], f"xrootd{number}-checksums", second, environment)
            wait_until(f"se{number}-checksums listens", lambda: is_open(checksum_port))
            self.admin("se", "add", name,
                       # The client tells replicas apart by their hosts.
                       "--prefix", f"root://127.0.0.{number}:{port}//data", "--qos", "disk")
        self.storage = True

    def start_storage(self, place):
        """Starts a data server, for the first time or again."""
        command, name, directory, environment, port = self.storage_commands[place]
        self.storage_processes[place] = self.start_as_nobody(command, name, directory, environment)
        wait_until(f"{name} listens", lambda: is_open(port))

    def start_as_nobody(self, command, name, directory, environment):
        """Starts an xrootd, which does not run as root."""
        user = {}
        if os.geteuid() == 0:
            os.chmod(self.place, 0o755)
            places = [directory, self.place / "cache"]
            for place in [*places, *(path for place in places for path in place.rglob("*"))]:
                # Servers that run make and remove files meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    os.chown(place, 65534, 65534)
            user = {"user": 65534, "group": 65534}
        return self.start(command, name, env=environment, cwd=directory, **user)

    def keys_into(self, cache):
        """The public keys where the plug-in keeps what it fetched: its trust in a certificate is the system's affair."""
        trust = ssl.create_default_context(cafile=str(self.data / "server.crt"))
        address = f"https://localhost:{self.port}"
        told = json.load(urllib.request.urlopen(f"{address}/.well-known/openid-configuration", context=trust))
        if told["issuer"] != self.issuer:
            raise Failed(f"another issuer: {told}")
        keys = json.load(urllib.request.urlopen(told["jwks_uri"], context=trust))
        later = int(time.time()) + 24 * 3600
        with contextlib.closing(sqlite3.connect(cache / "scitokens_cpp.sqllite")) as database:
            database.execute("CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)")
            entry = json.dumps({"jwks": keys, "expires": later, "next_update": later})
            database.execute("INSERT INTO keycache VALUES (?, ?)", (self.issuer, entry))
            database.commit()

    # ---- alien.py -----------------------------------------------------------------------------------------------------

    def install(self):
        venv = self.venv
        if not venv.exists():
            self.run([sys.executable, "-m", "venv", str(venv)])
        done = subprocess.run([str(venv / "bin/pip"), "install", "-q", "alienpy"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Left(f"alienpy cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
        self.client = venv / "bin/alien.py"
        home = self.place / "home"
        (home / "tmp").mkdir(parents=True)
        self.home = home
        self.environment = {
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "TMPDIR": str(home / "tmp"),
            "ALIENPY_JCENTRAL": "localhost", "ALIENPY_JCENTRAL_PORT": str(self.port),
            "X509_CERT_FILE": str(self.data / "server.crt"),
            "X509_USER_CERT": str(self.certificate_place / "user.pem"),
            "X509_USER_KEY": str(self.certificate_place / "user.key"),
            "XRD_CONNECTIONWINDOW": "3", "XRD_CONNECTIONRETRY": "1", "XRD_STREAMERRORWINDOW": "5",
            "LANG": "C.UTF-8",
        }

    def alien(self, *words, status=0, stdin=None, **environment):
        done = subprocess.run([str(self.client), *words], capture_output=True, text=True, timeout=PATIENCE, input=stdin,
                              env={**self.environment, **environment}, cwd=self.home)
        if status is not None and done.returncode != status:
            raise Failed(f"alien.py {' '.join(words)}: status {done.returncode} in place of {status}\n"
                         f"{done.stdout}{done.stderr}")
        return done.stdout


# ---- what is tried -------------------------------------------------------------------------------------------------------


def token(rig):
    """The first connection, with a user's certificate, gets a token; later ones use it."""
    expect("pwd", rig.alien("pwd").strip() == f"{HOME}/")
    tokens = list((rig.home / "tmp").glob("tokencert_*.pem"))
    expect("a token was stored", len(tokens) == 1)
    told = rig.alien("token-info")
    expect("the token is of jdoe", "CN=jdoe" in told, told)
    without = {"X509_USER_CERT": "/nope", "X509_USER_KEY": "/nope"}
    expect("by the token alone", rig.alien("whoami", **without).strip() == "jdoe")
    rig.alien("token-init")


def strangers(rig):
    """Who is not known is told so, and does not try again."""
    nobody = {"X509_USER_CERT": str(rig.certificate_place / "nobody.pem"),
              "X509_USER_KEY": str(rig.certificate_place / "nobody.key"), "TMPDIR": str(rig.place / "nobody")}
    (rig.place / "nobody").mkdir(exist_ok=True)
    rig.alien("pwd", status=129, **nobody)


def names(rig):
    """Every command on names."""
    alien = rig.alien
    alien("mkdir", "-p", "d1/d2")
    alien("mkdir", "x/y/z", status=2)
    alien("touch", "d1/empty.txt", "d1/other.log")
    expect("ls", alien("ls", "d1").split() == ["d2/", "empty.txt", "other.log"])
    expect("ls *", alien("ls", "d1/*.txt").split() == ["empty.txt"])
    alien("ls", "/nope", status=2)
    long = alien("ls", "-l", "d1")
    expect("ls -l", "drwxr-xr-x" in long and "jdoe" in long, long)
    for alias in ["la", "ll", "lla"]:
        alien(alias, "d1")
    expect("stat", f"File: {HOME}/d1/empty.txt" in alien("stat", "d1/empty.txt"))
    alien("stat", "/fail/no/valid", status=2)
    expect("type", alien("type", "d1").strip() == "directory")
    found = alien("find", "d1", "*").split()
    expect("find", found == [f"{HOME}/d1/empty.txt", f"{HOME}/d1/other.log"], found)
    expect("find -r", alien("find", "-r", "d1", ".*[.]log").split() == [f"{HOME}/d1/other.log"])
    expect("find2", f"{HOME}/d1/empty.txt" in alien("find2", "-glob", "*.txt", "d1"))
    alien("mv", "d1/empty.txt", "d1/moved.txt")
    alien("chmod", "700", "d1/moved.txt")
    alien("chown", "jdoe.jdoe", "d1/moved.txt")
    expect("chmod", "-rwx------" in alien("ls", "-l", "d1/moved.txt"))
    expect("du", "Files: 2" in alien("du", "d1"))
    expect("md5sum", "d41d8cd98f00b204e9800998ecf8427e" in alien("md5sum", "d1/moved.txt"))
    guid = alien("lfn2guid", "d1/moved.txt").split()[1]
    expect("guid2lfn", f"{HOME}/d1/moved.txt" in alien("guid2lfn", guid))
    alien("guid2lfn", "00000000-0000-1000-8000-000000000000", status=2)
    expect("toXml", "<collection" in alien("toXml", "d1/moved.txt"))
    alien("lfnexpiretime", "-a", "-d", "3", "d1/moved.txt")
    alien("cd", "d1")
    alien("rm", "d1/doesnotexist", status=2)
    alien("rm", "d1/moved.txt")
    alien("rmdir", "d1/d2")
    alien("rmdir", "nope", status=2)
    alien("rm", "-rf", "d1")
    alien("rm", "-f", "d1")
    alien("ls", "d1", status=2)


def session(rig):
    """Every command on who one is and where."""
    alien = rig.alien
    for words in [["whoami"], ["whoami", "-v"], ["groups"], ["quota"], ["fquota", "list"], ["jquota", "list"], ["listSEs"],
                  ["listSEDistance"], ["version"], ["help"], ["ls", "-h"], ["time", "pwd"], ["timing", "on"], ["echo", "x"],
                  ["motd"], ["commandlist"], ["setSite", "CERN"], ["user", "jdoe"], ["ping", "2"], ["home"]]:
        alien(*words)
    expect("home", alien("home").strip().rstrip("/") == HOME)
    alien("user", "admin", status=13)
    alien("submit", "x.jdl", status=None)


def own(rig):
    """What exacat adds is listed to the client, and is usable from it."""
    alien = rig.alien
    alien("mkdir", "own")
    alien("touch", "own/f")
    alien("tag", "set", "own", "run=246087")
    expect("a tag is inherited", "run = 246087" in alien("tag", "get", "own/f"))
    expect("showTagValue", "246087" in alien("showTagValue", "own/f"))
    alien("ln", "own/f", "own/l")
    alien("rm", "own/f")
    told = alien("trash")
    item = next(line.split()[0] for line in told.splitlines() if line.endswith("/own/f"))
    alien("trash", "restore", item)
    alien("stat", "own/f")
    expect("log", "removed" in alien("log", "own/f"))
    alien("snapshot", "ls", status=13)
    admin = {"JALIEN_TOKEN_CERT": str(rig.data / "jalien/admin.crt"), "JALIEN_TOKEN_KEY": str(rig.data / "jalien/admin.key")}
    rig.admin("snapshot", "create", "before")
    expect("snapshots", "before" in alien("snapshot", "ls", **admin))
    alien("rm", "-rf", "own")


def scripted(rig):
    """Several commands in one session, and the interactive prompt."""
    told = rig.alien("mkdir s; cd s; touch a b; ls; pwd; cd ..; rm -rf s")
    expect("one session", f"{HOME}/s/" in told and "a" in told.split() and "b" in told.split(), told)
    told = rig.alien(stdin="mkdir -p i\ncd i\npwd\ntouch f\nls\ncd\nrm -rf i\nexit\n", status=None)
    expect("interactive", f"{HOME}/i/" in told, told)
    told = json.loads(rig.alien("-json", "stat", "."))
    expect("-json", told["results"][0]["type"] == "d", told)


def copies(rig):
    """cp both ways, of files and directories, over storage that lets in by envelopes only."""
    need_storage(rig)
    alien, home = rig.alien, rig.home
    content = os.urandom(100_000)
    (home / "file.bin").write_bytes(content)
    alien("cp", f"file:{home}/file.bin", "c/file.bin")
    where = alien("whereis", "c/file.bin")
    expect("two replicas", where.count("pfn =>") == 2, where)
    alien("cp", "c/file.bin", f"file:{home}/back.bin")
    expect("the same bytes", (home / "back.bin").read_bytes() == content)
    (home / "hello.txt").write_text("hello world")
    alien("cp", f"file:{home}/hello.txt", "c/hello.txt@disk:1")
    expect("cat", "hello world" in alien("cat", "c/hello.txt"))
    digest = hashlib.md5(b"hello world").hexdigest()
    expect("md5sum", digest in alien("md5sum", "c/hello.txt"))
    for path in ["up/a/f1.txt", "up/a/f2.txt", "up/b/g1.log"]:
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(path)
    alien("cp", "-T", "4", f"file:{home}/up/", "c/rec/")
    found = alien("find", "c/rec", "*").split()
    expect("three files", len(found) == 3, found)
    alien("cp", "c/rec/*.txt", f"file:{home}/down/")
    expect("two of them", len([path for path in (home / "down").rglob("*.txt")]) == 2)
    # One replica is gone from its storage element: the other is read.
    se, pfn = where.split("SE => ")[1].split("pfn =>")
    broken = rig.place / f"se{SES.index(se.strip()) + 1}" / "files/data" / pfn.split("//data/")[1].split()[0]
    broken.unlink()
    alien("cp", "-f", "c/file.bin", f"file:{home}/failover.bin")
    expect("the other replica", (home / "failover.bin").read_bytes() == content)
    se = where.split("SE => ")[1].split()[0]
    alien("deleteMirror", "c/file.bin", se)
    expect("one replica", alien("whereis", "c/file.bin").count("pfn =>") == 1)
    alien("rm", "-rf", "c")


def contents(rig):
    """grep, toXml -x and -l, find -x, addMirror, a misspelt storage element, chown -R, find -f of a link."""
    need_storage(rig)
    alien, home = rig.alien, rig.home
    (home / "lines.txt").write_text("one\nTwo\nthree\n")
    alien("cp", f"file:{home}/lines.txt", "t/lines.txt@disk:1")
    expect("grep", alien("grep", "-in", "^t", "t/lines.txt").split() == ["2:Two", "3:three"])
    (home / "list.txt").write_text(f"{HOME}/t/lines.txt\n")
    alien("cp", f"file:{home}/list.txt", "t/list.txt@disk:1")
    expect("toXml -l", "lines.txt" in alien("toXml", "-l", f"{HOME}/t/list.txt"))
    alien("toXml", "-x", f"{HOME}/t/coll.xml", f"{HOME}/t/lines.txt")
    expect("toXml -x", "<collection" in alien("cat", "t/coll.xml"))
    alien("find", "-x", "t/found.xml", "t", "*.txt")
    expect("find -x", "lines.txt" in alien("grep", "event name", "t/found.xml") or "lines.txt" in alien("cat", "t/found.xml"))
    alien("touch", "t/mirrored")
    alien("addMirror", "t/mirrored", SES[0])
    expect("addMirror", SES[0] in alien("whereis", "t/mirrored"))
    alien("cp", f"file:{home}/lines.txt", "t/nowhere.txt@ALICE::TEST::SE8", status=None)
    alien("stat", "t/nowhere.txt", status=2)
    alien("chown", "-R", "jdoe.jdoe", "t")
    alien("ln", "t/lines.txt", "t/link.txt")
    found = json.loads(alien("-json", "find", "-f", "t", "link.txt"))
    expect("find -f of a link", found["results"][0]["size"] == "14", found)
    expect("uuid", "uuid" in alien("uuid", "-h"))
    alien("rm", "-rf", "t")


def envelopes(rig):
    """The data servers refuse what is missing, forged, or for another file."""
    need_storage(rig)
    (rig.home / "e.txt").write_text("sealed")
    rig.alien("cp", f"file:{rig.home}/e.txt", "e/e.txt")
    (rig.home / "e2.txt").write_text("another")
    rig.alien("cp", f"file:{rig.home}/e2.txt", "e/e2.txt")

    def places(lfn):
        told = json.loads(rig.alien("-json", "access", "read", f"{HOME}/e/{lfn}"))
        return [(place["url"], place["envelope"]) for place in told["results"]]

    xrdcp = next((path for path in [pathlib.Path(rig.xrootd_root or "/") / "usr/bin/xrdcp"] if path.exists()), None)
    if xrdcp is None:
        raise Left("there is no xrdcp")
    environment = dict(rig.environment, XRD_REQUESTTIMEOUT="20")
    if rig.xrootd_root:
        environment["LD_LIBRARY_PATH"] = str(pathlib.Path(rig.xrootd_root) / "usr/lib/x86_64-linux-gnu")

    def read(url, envelope):
        tail = f"?authz={envelope}" if envelope else ""
        command = [str(xrdcp), "-f", "-N", f"{url}{tail}", str(rig.home / "got")]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE).returncode == 0

    url, envelope = places("e.txt")[0]
    header, claims, signature = envelope.split(".")
    expect("the right one is let in", read(url, envelope))
    expect("none is not", not read(url, ""))
    expect("a tampered one is not", not read(url, f"{header}.{claims}.{signature[:-4]}AAAA"))
    expect("an unsigned one is not", not read(url, f"{header}.{claims}."))
    expect("that of another file is not", not read(url, places("e2.txt")[0][1]))
    rig.alien("rm", "-rf", "e")


def upstream(rig):
    """The upstream tests of alien.py, unchanged."""
    need_storage(rig)
    archive = rig.place / "upstream.tar.gz"
    source = os.environ.get("ALIENPY_TESTS")
    place = rig.place / "upstream"
    place.mkdir()
    if source:
        shutil.copytree(source, place / "tests")
    else:
        try:
            with urllib.request.urlopen(UPSTREAM, timeout=30) as answer:
                archive.write_bytes(answer.read())
        except OSError as error:
            raise Left(f"the tests of alien.py cannot be fetched ({error}); ALIENPY_TESTS=DIR names a copy")
        rig.run(["tar", "-xzf", str(archive), "-C", str(place), "--strip-components=1"])
    admin = {"JALIEN_TOKEN_CERT": str(rig.data / "jalien/admin.crt"), "JALIEN_TOKEN_KEY": str(rig.data / "jalien/admin.key"),
             "TMPDIR": str(rig.place / "admin")}
    (rig.place / "admin").mkdir(exist_ok=True)
    reference = rig.home / "referenceData"
    for path in ["referenceData.xml", "001/stdout.log", "001/stderr.log", "002/stdout.log", "002/stderr.log"]:
        (reference / path).parent.mkdir(parents=True, exist_ok=True)
        (reference / path).write_text(f"{path}\n" * 10)
        rig.alien("cp", f"file:{reference / path}", f"{REFERENCE}/{path}", **admin)
    failed = []
    tests = sorted((place / "tests").glob("*.test"))
    for test in tests:
        done = subprocess.run(["bash", "./test.sh"], cwd=test, capture_output=True, text=True, env=rig.environment,
                              timeout=5 * PATIENCE)
        if done.returncode != 0:
            failed.append(f"{test.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    say(f"  upstream: {len(tests) - len(failed)} of {len(tests)}")
    expect("the upstream tests", tests and not failed, "\n".join(failed))


def need_storage(rig):
    if not rig.storage:
        raise Left("no xrootd runs here")


TRIED = [token, strangers, names, session, own, scripted, copies, contents, envelopes, upstream, *clients_of_xrootd.TRIED,
         *clients_of_http.TRIED, *clients_influx.TRIED, *clients_archive.TRIED,
         rest_schema.rest]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exacat")
    parser.add_argument("--keep", action="store_true", help="leave everything where it is")
    parser.add_argument("--xrootd-root", help="where Debian's packages of xrootd are unpacked, if not installed")
    parser.add_argument("--venv", help="an environment of Python to install clients into, in place of a temporary one")
    parser.add_argument("--only", default="", help="only what has TEXT in its name")
    parser.add_argument("--spark", action="store_true", help="also Spark, a download of half a gigabyte that needs Java")
    asked = parser.parse_args()
    place = tempfile.mkdtemp(prefix="exacat-clients-")
    rig = Rig(os.path.realpath(asked.exacat), place, asked.xrootd_root, asked.spark)
    if asked.venv:
        rig.venv = pathlib.Path(asked.venv).resolve()
    failed, left = 0, 0
    try:
        try:
            rig.serve()
            rig.install()
        except Left as why:
            say(f"left out: everything: {why}")
            return 0
        try:
            rig.xrootd()
        except Left as why:
            say(f"left out: {why}")
        for tried in TRIED:
            if asked.only not in tried.__name__:
                continue
            try:
                tried(rig)
                say(f"ok        {tried.__name__}: {tried.__doc__}")
            except Left as why:
                left += 1
                say(f"left out  {tried.__name__}: {why}")
            except (Failed, subprocess.TimeoutExpired) as why:
                failed += 1
                say(f"FAILED    {tried.__name__}: {why}")
    finally:
        rig.stop()
        if asked.keep or failed:
            say(f"everything is in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    say(f"{failed} failed, {left} left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
