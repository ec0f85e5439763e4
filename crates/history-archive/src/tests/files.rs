//! Files of the archive: their schema, exact values, parts that are read, ends of days and groups.

use exacat_history::columns::Columns;
use exacat_history::run::{Elements, day_of};
use exacat_history::{ArchivedFile, History};
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::*;
use crate::block_digests::BLOCK_BYTES;
use crate::blocks::FileBytes;
use crate::delta::KEEP_REMOVED;
use crate::reader::{FileScan, Source};

pub(super) const GOLDEN: &[u8] = include_bytes!("golden.parquet");

/// The same with digests of its blocks.
const GOLDEN_2: &[u8] = include_bytes!("golden-2.parquet");

/// Day of the rows of the golden files.
const DAY: i32 = 20_000;

/// Returns a group with elements and fields of all kinds, and rows with values that are easily lost.
pub(super) fn exact_rows(history: &History) -> (Arc<Group>, Columns) {
    let group = make_group(history, "exact");
    let lines = "EVENT,name=System1:a.b original_value_float=1,_status64=1i,_user=1i,_ok=true,_text=\"x\" 1\n\
                 EVENT,name=System1:a.b original_value_int=1i,_big=1u 2\ncpu,host=h a=1,b=2i,c=3u,quality=4i 3\n\
                 ev v=1u,q=5i 4\nodd v=true,q=\"text\" 5\nt t=\"x\" 6\n";
    write(history, &group, lines).unwrap();
    let day = i64::from(DAY) * DAY_NANOSECONDS;
    let mut rows = Columns::default();
    let mut add = |key: &str, time: i64, values: &[(&str, FieldValue)]| {
        let names = group.names();
        let element = names.element(key.as_bytes()).unwrap();
        let measurement = names.measurement_of(element);
        let field =
            |(name, value): &(&str, FieldValue)| (names.field(measurement, name).unwrap(), value.clone());
        let mut values: Vec<(u32, FieldValue)> = values.iter().map(field).collect();
        values.sort_by_key(|(field, _)| *field);
        rows.push((element, day + time), values.iter().map(|(field, value)| (*field, value.borrow())))
            .unwrap();
    };
    use FieldValue::{Boolean, Float, Integer, Text, Unsigned};
    let event = "EVENT,name=System1:a.b";
    let status = || ("_status64", Integer(i64::MIN));
    let bits = |bits| Float(f64::from_bits(bits));
    for (time, value) in [
        (0, f64::NAN.to_bits()),
        (1, 0xfff8_0000_dead_beef),
        (2, 0x7ff0_0000_0000_0001),
        (1000, f64::INFINITY.to_bits()),
        (1001, (-0.0f64).to_bits()),
        (2000, 1),
        (2001, f64::MAX.to_bits()),
    ] {
        add(event, time, &[("original_value_float", bits(value)), status(), ("_user", Integer(i64::MAX))]);
    }
    for (time, value) in [(3000, 1 << 53), (3001, (1 << 53) + 1), (3002, i64::MIN), (3003, i64::MAX)] {
        add(event, time, &[("original_value_int", Integer(value)), ("_big", Unsigned(u64::MAX))]);
    }
    // No value, and no field at all that a column has.
    add(event, 4000, &[status()]);
    add(event, 5000, &[("_ok", Boolean(false)), ("_text", Text("\"ä\\\n".into()))]);
    add(
        event,
        DAY_NANOSECONDS - 1,
        &[("original_value_float", bits(0x7ff8_0000_0000_0001)), ("_ok", Boolean(true))],
    );
    add(
        "cpu,host=h",
        0,
        &[("a", Float(0.1)), ("b", Integer(-1)), ("c", Unsigned(u64::MAX)), ("quality", Integer(7))],
    );
    add("cpu,host=h", 1, &[("a", bits(0xfff8_0000_0000_0000)), ("b", Integer(i64::MIN))]);
    add("ev", 0, &[("v", Unsigned((1 << 53) + 1)), ("q", Integer(0))]);
    add("ev", 1, &[("v", Unsigned(u64::MAX))]);
    add("odd", 7, &[("v", Boolean(true)), ("q", Text("no number".into()))]);
    add("odd", 8, &[("q", Text("alone".into()))]);
    add("t", 0, &[("t", Text("".into()))]);
    add("t", 1, &[("t", Text("\u{0}\u{202e}'\"".into()))]);
    (group, rows)
}

fn archived(rig: &Rig, group: &Arc<Group>, rows: Columns) -> Vec<ArchivedFile> {
    rig.archive().write(&named(group), DAY, None, &mut vec![rows].into_iter()).unwrap()
}

fn bytes_of(rig: &Rig, path: &str) -> bytes::Bytes {
    Place::of(Arc::clone(&rig.store), "below/here", "memory").unwrap().read_all(path).unwrap()
}

/// Opens a file of which only the bytes are known.
pub(super) fn open(bytes: bytes::Bytes, group: &Arc<Group>) -> Result<FileScan> {
    let source =
        Source { name: "file".to_owned(), bytes: FileBytes::Memory(bytes), digest: None, known: None };
    FileScan::open(source, &named(group), &Wanted::all())
}

/// Every row comes back with all its fields, types and bits: NaNs, integers beyond 2^53, empty texts.
#[test]
fn every_bit_comes_back() {
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let (group, rows) = exact_rows(&history);
    let wanted = read_source(&group, &mut vec![rows.clone()].into_iter()).unwrap();
    let files = archived(&rig, &group, rows);
    let mut scan = rig.archive().scan(&named(&group), &files, &Wanted::all());
    let found = read_source(&group, &mut *scan).unwrap();
    assert_eq!(found.len(), wanted.len());
    for (key, value) in &wanted {
        assert_eq!(found.get(key), Some(value), "{key:?}");
    }
}

/// The columns are the golden ones, and a file of an earlier release is read as it was written.
#[test]
fn golden_file_is_read() {
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let (group, rows) = exact_rows(&history);
    let wanted = read_source(&group, &mut vec![rows.clone()].into_iter()).unwrap();
    let files = archived(&rig, &group, rows);
    let path = files[0].path.clone();
    if let Ok(place) = std::env::var("EXACAT_GOLDEN_ARCHIVE") {
        std::fs::write(place, bytes_of(&rig, &path)).unwrap();
    }
    let schema = |bytes: bytes::Bytes| {
        let file = SerializedFileReader::new(bytes).unwrap();
        let mut text = Vec::new();
        parquet::schema::printer::print_schema(&mut text, file.metadata().file_metadata().schema());
        String::from_utf8(text).unwrap()
    };
    let golden = include_str!("golden_schema.txt");
    assert_eq!(schema(bytes_of(&rig, &path)), golden, "{}", schema(bytes_of(&rig, &path)));
    assert_eq!(schema(bytes::Bytes::from_static(GOLDEN)), golden);
    for golden in [GOLDEN, GOLDEN_2] {
        let mut scan = open(bytes::Bytes::from_static(golden), &group).unwrap();
        assert!(read_source(&group, &mut scan).unwrap() == wanted);
    }
}

/// A damaged file gives an error or the same rows, and never a panic.
#[test]
fn damaged_file_never_panics() {
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let (group, _) = exact_rows(&history);
    let read = |bytes: Vec<u8>| {
        let mut scan = open(bytes.into(), &group)?;
        while scan.next_rows()?.is_some() {}
        Ok::<_, exacat_model::Error>(())
    };
    for golden in [GOLDEN, GOLDEN_2] {
        let mut refused = 0;
        for at in (0..golden.len()).step_by(3) {
            let mut damaged = golden.to_vec();
            damaged[at] ^= 1 << (at % 8);
            refused += usize::from(read(damaged).is_err());
            refused += usize::from(read(golden[..at].to_vec()).is_err());
        }
        assert!(refused > golden.len() / 3, "{refused}");
        assert!(read(golden.to_vec()).is_ok());
    }
}

/// Archives a day of 4000 elements with 200 rows each, in one file of some MB.
fn large_file(rig: &Rig, history: &History) -> (Arc<Group>, Vec<ArchivedFile>) {
    let group = wait(history.set_group(GroupSettings { elements_max: 5000, ..group_settings("g") })).unwrap();
    let day = i64::from(DAY) * DAY_NANOSECONDS;
    let lines: String = (0..4000).map(|element| format!("ev,e={element} v=1 {day}\n")).collect();
    write(history, &group, &lines).unwrap();
    let mut batches = Vec::new();
    for element in 0..4000u32 {
        let mut rows = Columns::default();
        for time in 0..200i64 {
            let value =
                f64::from_bits(0x3ff0_0000_0000_0000 | u64::from(element) << 32 | (time as u64 * 7919));
            let values = [(0, exacat_model::FieldRef::Float(value))];
            rows.push((element, day + time * 1_000_001), values).unwrap();
        }
        batches.push(rows);
    }
    let place = Place::of(Arc::clone(&rig.store), "below/here", "memory").unwrap();
    let archive = ParquetArchive::new(place);
    let files = archive.write(&named(&group), DAY, None, &mut batches.into_iter()).unwrap();
    assert_eq!(files.len(), 1);
    (group, files)
}

/// Element of the large file that is read.
const ONE: u32 = 2345;

fn read_one(rig: &Rig, group: &Arc<Group>, files: &[ArchivedFile]) -> Result<Values> {
    let wanted = Wanted { elements: Elements::one(ONE), ..Wanted::all() };
    read_source(group, &mut *rig.archive().scan(&named(group), files, &wanted))
}

/// A read of one element reads a small part of a large file.
#[test]
fn one_element_reads_few_pages() {
    let rig = Rig::new();
    let flaky = Arc::new(flaky::Flaky::new(Arc::clone(&rig.store)));
    let rig = Rig { store: Arc::<flaky::Flaky>::clone(&flaky), ..rig };
    let history = rig.open().unwrap();
    let (group, files) = large_file(&rig, &history);
    let blocks = files[0].bytes.div_ceil(BLOCK_BYTES);
    let before = flaky.requests();
    assert_eq!(read_one(&rig, &group, &files).unwrap().len(), 200);
    let requests = flaky.requests() - before;
    assert!(requests * 2 < blocks, "{requests} requests of {blocks} blocks");
}

/// One flipped bit in a part that a read of one element needs fails the read with the name of the file. With
/// a flip in another part the read is right. Each part of the end is needed: its digests are of all blocks.
#[test]
fn flipped_bit_in_a_part_is_told() {
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let (group, files) = large_file(&rig, &history);
    let place = Place::of(Arc::clone(&rig.store), "below/here", "memory").unwrap();
    let (path, wanted) = (&files[0].path, read_one(&rig, &group, &files).unwrap());
    let whole = place.read_all(path).unwrap();
    let length = whole.len() as u64;
    let mut random = exacat_testkit::simulated::Random(9);
    let (mut told, mut right) = (0, 0);
    // Blocks in turn, and the last bytes one by one.
    let blocks =
        (0..length.div_ceil(BLOCK_BYTES)).map(|block| block * BLOCK_BYTES + random.next(BLOCK_BYTES));
    for byte in blocks.chain(length - 100..length).filter(|byte| *byte < length).collect::<Vec<_>>() {
        let mut damaged = whole.to_vec();
        damaged[byte as usize] ^= 1 << random.next(8);
        let damaged = bytes::Bytes::from(damaged);
        // An adoption knows nothing of the file, and notices what its own digests tell.
        let adopted = crate::ParquetRows::of_archive(path.clone(), damaged.clone());
        assert!(byte + 2 * BLOCK_BYTES > length || adopted.is_err(), "byte {byte}");
        place.put(path, damaged).unwrap();
        match read_one(&rig, &group, &files) {
            Ok(found) => {
                assert!(found == wanted && byte < length - 100, "byte {byte}");
                right += 1;
            }
            Err(error) => {
                assert!(
                    error.kind == exacat_model::ErrorKind::Corrupt && error.message.contains(path.as_str()),
                    "{error}"
                );
                told += 1;
            }
        }
    }
    assert!(told > 101 && right > 3, "{told} told, {right} right");
}

/// Rows of a long day, made when they are asked for. Each time it checks that the rows before are stored.
struct LongDay {
    store: Arc<dyn ObjectStore>,
    given: usize,
}

impl SortedRows for LongDay {
    fn next_rows(&mut self) -> Result<Option<Columns>> {
        let place = Place::of(Arc::clone(&self.store), "below/here", "memory").unwrap();
        let stored = place.list("group=g").unwrap().len() * crate::schema::ROW_GROUP_ROWS;
        assert!(
            self.given <= stored + crate::schema::ROW_GROUP_ROWS + 4096,
            "{} rows are held",
            self.given - stored
        );
        if self.given >= 1_000_000 {
            return Ok(None);
        }
        let mut rows = Columns::default();
        for row in self.given..self.given + 4000 {
            let time = i64::from(DAY) * DAY_NANOSECONDS + row as i64 * 1_000_000;
            rows.push((0, time), [(0, exacat_model::FieldRef::Float(row as f64))]).unwrap();
        }
        self.given += 4000;
        Ok(Some(rows))
    }
}

/// A day of any length takes the memory of a file: rows are asked for when those before are stored.
#[test]
fn long_day_is_never_held() {
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let group = make_group(&history, "g");
    write(&history, &group, "ev v=1 1").unwrap();
    // Files are smaller than a row group, so each has one.
    let archive = rig.archive();
    let mut rows = LongDay { store: Arc::clone(&rig.store), given: 0 };
    let files = archive.write(&named(&group), DAY, None, &mut rows).unwrap();
    assert_eq!(files.iter().map(|file| file.rows).sum::<u64>(), 1_000_000);
    assert_eq!(files.len(), 1_000_000usize.div_ceil(crate::schema::ROW_GROUP_ROWS));
}

/// Days beyond the retention leave the archive, and their files are deleted after the delay. A dropped group
/// leaves it too.
#[test]
fn ended_days_and_dropped_groups_leave_the_archive() {
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let (group, other) = (make_group(&history, "g"), make_group(&history, "dét"));
    for days in 4..9 {
        let line = format!("ev v={days} {}", rig.clock.days_ago(days));
        write(&history, &group, &line).unwrap();
        write(&history, &other, &line).unwrap();
    }
    history.flush().unwrap();
    history.archive_days().unwrap();
    assert_eq!(rig.live().len(), 10);
    assert!(
        rig.live().iter().any(|path| path.starts_with("group=d%C3%A9t/day=2026-11-")),
        "{:?}",
        rig.live()
    );
    wait(history.set_group(GroupSettings { retention_days: 6, ..group_settings("g") })).unwrap();
    assert_eq!(read(&group, &Wanted::all()).unwrap().len(), 3, "hidden at once");
    history.remove_ended_days().unwrap();
    wait(history.drop_group(&GroupName::parse("dét").unwrap())).unwrap();
    history.archive_days().unwrap();
    assert_eq!(rig.live().len(), 3);
    let objects = || {
        let place = Place::of(Arc::clone(&rig.store), "below/here", "memory").unwrap();
        place.list("").unwrap().iter().filter(|object| object.path.starts_with("group=")).count()
    };
    assert_eq!(objects(), 10, "readers may have begun before");
    rig.clock.pass_days(KEEP_REMOVED.as_secs() / 86_400 + 1);
    history.archive_days().unwrap();
    // By now the retention has ended all.
    assert_eq!(objects(), 3);
    drop((group, other));
    drop(history);
    let history = rig.open().unwrap();
    history.remove_ended_days().unwrap();
    history.archive_days().unwrap();
    assert_eq!(rig.live(), Vec::<String>::new());
}

/// An archive of another history is refused, and nothing of it is changed.
#[test]
fn archive_of_another_history_is_refused() {
    let rig = Rig::new();
    let old = rig.clock.days_ago(8);
    let fill = |rig: &Rig| {
        let history = rig.open().unwrap();
        let group = make_group(&history, "g");
        write(&history, &group, &format!("ev v=1 {old}")).unwrap();
        history.flush().unwrap();
        history.archive_days()
    };
    fill(&rig).unwrap();
    let live = rig.live();
    let other = Rig { disk: SimulatedDisk::new(), store: Arc::clone(&rig.store), clock: rig.clock.clone() };
    let error = fill(&other).unwrap_err();
    assert!(error.message.contains("belongs to another history"), "{error}");
    assert_eq!(rig.live(), live);
}

/// A history without the archive says which option is missing, for archived days alone.
#[test]
fn archived_day_without_the_archive_is_told() {
    let rig = Rig::new();
    let (old, now) = (rig.clock.days_ago(8), rig.clock.now_ns());
    let history = rig.open().unwrap();
    let group = make_group(&history, "g");
    write(&history, &group, &format!("ev v=1 {old}\nev v=2 {now}")).unwrap();
    history.flush().unwrap();
    history.archive_days().unwrap();
    drop(group);
    drop(history);
    let settings = HistorySettings { archive: None, ..rig.settings() };
    let history = History::open_on(rig.disk.shared(), settings).unwrap();
    let group = group_of(&history, "g");
    let error = read(&group, &Wanted::all()).unwrap_err();
    assert!(error.message.contains("--history-archive"), "{error}");
    let today = Wanted { times: i64::from(day_of(now)) * DAY_NANOSECONDS..=now, ..Wanted::all() };
    assert_eq!(read(&group, &today).unwrap().len(), 1);
}

/// Files of a directory are private, whole, and read back.
#[test]
fn directory_is_an_archive() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/archive");
    let archive = ParquetArchive::new(Place::open(&path.display().to_string()).unwrap());
    let rig = Rig::new();
    let history = rig.open().unwrap();
    let (group, rows) = exact_rows(&history);
    let wanted = read_source(&group, &mut vec![rows.clone()].into_iter()).unwrap();
    let files = archive.write(&named(&group), DAY, None, &mut vec![rows].into_iter()).unwrap();
    archive.claim(&owner(1), &[]).unwrap();
    archive.publish(&owner(1), TimeMs(1), &files).unwrap();
    assert!(
        std::fs::read_to_string(path.join("_exacat_owner"))
            .unwrap()
            .starts_with("exacat owner of this archive")
    );
    archive.take_over(&owner(1), TimeMs(2)).unwrap();
    assert!(path.join("_delta_log/00000000000000000000.json").exists());
    assert!(path.join(&files[0].path).exists());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let found = read_source(&group, &mut *archive.scan(&named(&group), &files, &Wanted::all())).unwrap();
    assert!(found == wanted);
}
