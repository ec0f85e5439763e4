//! Lines of every form, good and broken.

use super::*;

fn read_all(dump: &str, options: &DumpOptions) -> (Form, Vec<String>) {
    let mut reader = DumpReader::detect(dump.as_bytes(), options).unwrap();
    let dump = dump.strip_prefix('\u{feff}').unwrap_or(dump);
    let mut found = Vec::new();
    for line in dump.lines().filter(|line| !line.is_empty()) {
        found.push(match reader.read(line.as_bytes()) {
            Read::File(file) => format!(
                "{} {} {}",
                file.path,
                file.size.map_or("-".to_owned(), |size| size.to_string()),
                file.checksum.map_or("-".to_owned(), |checksum| checksum.to_string())
            ),
            Read::Directory => "directory".to_owned(),
            Read::Nothing => "nothing".to_owned(),
            Read::Bad(flaw) => flaw.name().to_owned(),
        });
    }
    (reader.form(), found)
}

#[track_caller]
fn check(dump: &str, form: Form, expected: &[&str]) {
    assert_eq!(
        read_all(dump, &DumpOptions::default()),
        (form, expected.iter().map(ToString::to_string).collect())
    );
}

/// A list of paths is one whatever its paths contain.
#[test]
fn plain_paths_are_read_as_they_are() {
    check(
        "# dump of today\n/d/a\n/d/b c\n/d/\n/d/x,y\n",
        Form::Paths,
        &["nothing", "/d/a - -", "/d/b c - -", "directory", "/d/x,y - -"],
    );
    check("root://h//d/a\na/b\n", Form::Paths, &["root://h//d/a - -", "a/b - -"]);
    check("\u{feff}/d/a\n/d/b\u{1}\n", Form::Paths, &["/d/a - -", "control-characters"]);
    check("", Form::Paths, &[]);
}

/// Columns follow from the header, from the first row, or from the options.
#[test]
fn columns_follow_from_header_row_or_options() {
    let row = "/d/a 5 adler32:0a0b0c0d";
    check("path,size,checksum\n/d/a,5,adler32:0A0B0C0D\n", Form::Csv, &["nothing", row]);
    check("/d/a,5,0a0b0c0d\n\"/d/b,c\",,\n", Form::Csv, &[row, "/d/b,c - -"]);
    check("size\tadler32\tpfn\n5\ta0b0c0d\t/d/a\n", Form::Tsv, &["nothing", row]);
    check("5\t0a0b0c0d\t/d/a\n", Form::Tsv, &[row]);
    check("/d/a\t5\n/d/b\t6\n", Form::Tsv, &["/d/a 5 -", "/d/b 6 -"]);
    // DIRAC's getSEDump.
    check("SE1|/d/a|0a0b0c0d|5\n", Form::Tsv, &[row]);
    let options =
        DumpOptions { columns: Some(Columns::parse("-,path,size").unwrap()), ..DumpOptions::default() };
    assert_eq!(read_all("x\t/d/a\t5\n", &options).1, ["/d/a 5 -"]);
    let options =
        DumpOptions { columns: Some(Columns::parse("where=path,3=size").unwrap()), ..DumpOptions::default() };
    assert_eq!(read_all("id,where,n,checksum,size\n1,/d/a,5,,\n", &options).1, ["nothing", "/d/a 5 -"]);
    let options =
        DumpOptions { columns: Some(Columns::parse("size,checksum").unwrap()), ..DumpOptions::default() };
    assert!(DumpReader::detect(b"1,2", &options).is_err());
    let xrdfs = DumpOptions { form: Some(Form::Xrdfs), ..options };
    assert!(DumpReader::detect(b"", &xrdfs).is_err());
}

/// Checksums without a name are known by their length, and zeros mean none.
#[test]
fn checksums_without_a_name_are_known_by_their_length() {
    let md5 = "0123456789abcdef0123456789abcdef";
    check(
        &format!("/d/a,1,{md5}\n/d/b,1,00000000\n/d/c,1,-\n/d/d,1,xyz\n/d/e,1,123\n/d/f,1,md5:12\n"),
        Form::Csv,
        &[
            &format!("/d/a 1 md5:{md5}"),
            "/d/b 1 -",
            "/d/c 1 -",
            "bad-checksum",
            "/d/e 1 adler32:00000123",
            "bad-checksum",
        ],
    );
}

/// Listings of xrdfs have two forms, and checksums with -C.
#[test]
fn listing_of_xrdfs_is_read_with_and_without_owners_and_checksums() {
    check(
        "-rw-r--r-- alice  alice      1234 2026-11-20 12:00:00 /d/a b\n\
         drwxr-xr-x alice alice 4096 2026-11-20 12:00:00 /d/sub\n\
         -rw-r--r-- alice alice 7 adler32:0a0b0c0d 2026-11-20 12:00:00 /d/c\n\
         -rw- 2026-11-20 12:00:00          99 /d/d\n\
         -rw- 2026-11-20 12:00:00          9k /d/e\n\
         ---- 0000-00-00 00:00:00            ? /d/f\n\
         -rw-r--r-- alice alice 7\n\
         /d/g\n",
        Form::Xrdfs,
        &[
            "/d/a b 1234 -",
            "directory",
            "/d/c 7 adler32:0a0b0c0d",
            "/d/d 99 -",
            "bad-size",
            "/d/f - -",
            "other-form",
            "other-form",
        ],
    );
}

/// Lines of key=value give path, size and checksum, whatever other keys there are.
#[test]
fn lines_of_eos_are_read_by_their_keys() {
    check(
        "path=/eos/a b size=5 checksum=0a0b0c0d\n\
         path=\"/eos/x y=z\" size=6 checksum=00000000\n\
         path=/eos/c fid=12 size=7 xstype=md5 xs=0123456789abcdef0123456789abcdef\n\
         path=/eos/d/\n\
         cid=7 path=/eos/e\n\
         fid=1 size=3\n\
         path=/eos/f size=x\n\
         nonsense\n",
        Form::Eos,
        &[
            "/eos/a b 5 adler32:0a0b0c0d",
            "/eos/x y=z 6 -",
            "/eos/c 7 md5:0123456789abcdef0123456789abcdef",
            "directory",
            "directory",
            "no-path",
            "bad-size",
            "other-form",
        ],
    );
}

/// Listings of dCache's namespace are read whole and condensed.
#[test]
fn listing_of_chimera_is_read_whole_and_condensed() {
    let id = "0000A1B2C3D4E5F60718293A4B5C6D7E8F90";
    check(
        &format!("/pnfs/a\t{id}\t0a0b0c0d\t5\t1700000000\tpool1\n"),
        Form::Chimera,
        &["/pnfs/a 5 adler32:0a0b0c0d"],
    );
    check(
        &format!("/pnfs/d\nx\t{id}\t0a0b0c0d\t5\t17\tp1,p2\n/pnfs/e\ny\t{id}\t\t\t17\tp\nbad\n"),
        Form::Chimera,
        &["directory", "/pnfs/d/x 5 adler32:0a0b0c0d", "directory", "/pnfs/e/y - -", "other-form"],
    );
}

/// Replica dumps of Rucio have the path in the seventh column.
#[test]
fn replica_dump_of_rucio_has_its_own_columns() {
    check(
        "RSE\tmc\tf.root\t0a0b0c0d\t5\t2026-01-01\tmc/ab/cd/f.root\t2026-01-02\tA\nRSE\tmc\tf\n",
        Form::Rucio,
        &["mc/ab/cd/f.root 5 adler32:0a0b0c0d", "other-form"],
    );
}

/// Whatever the bytes, a line has an outcome, and a path is usable.
#[test]
fn broken_lines_have_reasons() {
    let mut reader = DumpReader::detect(b"/a\n", &DumpOptions::default()).unwrap();
    assert_eq!(reader.read(b"\xff"), Read::Bad(Flaw::NotUtf8));
    let long = "x".repeat(PFN_BYTES_MAX);
    assert!(matches!(reader.read(long.as_bytes()), Read::File(_)));
    assert_eq!(reader.read(format!("{long}x").as_bytes()), Read::Bad(Flaw::PathTooLong));
    assert!(DumpReader::detect(b"<?xml version=\"1.0\"?>\n", &DumpOptions::default()).is_err());
    let alphabet: Vec<&str> =
        vec!["/", "a", " ", "\t", ",", "\"", "=", "path=", "-rw-", "2026-11-20", "\\", "#", "|", "0"];
    let mut state = 1u64;
    for form in Form::ALL {
        for _ in 0..2000 {
            let mut line = String::new();
            for _ in 0..8 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                line.push_str(alphabet[(state >> 33) as usize % alphabet.len()]);
            }
            let options = DumpOptions { form: Some(form), ..DumpOptions::default() };
            let mut reader = DumpReader::detect(line.as_bytes(), &options).unwrap();
            if let Read::File(file) = reader.read(line.as_bytes()) {
                assert!(!file.path.is_empty() && !file.path.contains('\t'), "{line:?}");
            }
            assert_eq!(Form::parse(form.name()).unwrap(), form);
        }
    }
}
