//! Counters of the disk below the data directory, as the kernel has them in `/sys/dev/block/*/stat`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use exacat_store::{Metric, Sample};
use parking_lot::Mutex;

use crate::metric_table as table;

/// Most bytes of the kernel's text: it has 17 numbers of at most 20 digits.
const TEXT_BYTES_MAX: u64 = 1024;
/// Numbers of the text before Linux 4.18. Later kernels append discards, and since 5.5 flushes.
const NUMBERS_MIN: usize = 11;
/// Numbers that are read; later kernels may append more.
const NUMBERS_MAX: usize = 17;
/// Most steps from a file system's device to its disk: partition, volume, encryption, partition.
const LAYERS_MAX: usize = 8;

/// A counter: its metric, its place in the text, and the units of the metric in one of the kernel's.
/// The kernel counts sectors of 512 bytes, whatever those of the disk are.
const COUNTERS: [(&Metric, usize, u64); 10] = [
    (&table::DISK_READS, 0, 1),
    (&table::DISK_READ_BYTES, 2, 512),
    (&table::DISK_READ_TIME, 3, 1),
    (&table::DISK_WRITES, 4, 1),
    (&table::DISK_WRITE_BYTES, 6, 512),
    (&table::DISK_WRITE_TIME, 7, 1),
    (&table::DISK_BUSY_TIME, 9, 1),
    (&table::DISK_REQUEST_TIME, 10, 1),
    (&table::DISK_FLUSHES, 15, 1),
    (&table::DISK_FLUSH_TIME, 16, 1),
];
/// Places of times, which the kernel shows as milliseconds in 32 bits: they wrap after 49 days of work.
const TIMES: [usize; 6] = [3, 7, 9, 10, 14, 16];

/// The disk below a directory, with the sums of its counters since the first reading.
pub(crate) struct DataDisk {
    name: String,
    text: PathBuf,
    counted: Mutex<Counted>,
}

/// Counters at the last reading, and what was added since the first one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    last: Vec<u64>,
    sums: Vec<u64>,
}

impl DataDisk {
    /// Finds the disk of a directory. None for a file system without a block device of its own, such as
    /// overlay, tmpfs, NFS or btrfs.
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let device = fs::metadata(directory).ok()?.dev();
        let disk = disk_below(Path::new("/sys/dev/block"), device)?;
        let text = disk.join("stat");
        let first = numbers(&read(&text)?)?;
        let name = disk.file_name()?.to_string_lossy().into_owned();
        Some(DataDisk { name, text, counted: Mutex::new(Counted::from(first)) })
    }

    /// Reads the counters. A kernel without a counter has no sample of it.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut counted = self.counted.lock();
        // A disk that is away has what it had.
        if let Some(now) = read(&self.text).and_then(|text| numbers(&text)) {
            counted.add(now);
        }
        let sums = &counted.sums;
        let shown = COUNTERS.iter().filter_map(|(metric, place, units)| {
            Some(metric.of(self.name.clone(), sums.get(*place)?.saturating_mul(*units)))
        });
        shown.collect()
    }
}

impl Counted {
    fn from(first: Vec<u64>) -> Self {
        Counted { sums: vec![0; first.len()], last: first }
    }

    /// Adds what the counters increased by.
    fn add(&mut self, now: Vec<u64>) {
        let is_count = |place: &usize| !TIMES.contains(place);
        let counts = COUNTERS.iter().map(|(_, place, _)| *place).filter(is_count);
        let at = |numbers: &[u64], place: usize| numbers.get(place).copied().unwrap_or(0);
        // The device was taken away and came back: what it did before this reading is not known.
        let went_back = counts.into_iter().any(|place| at(&now, place) < at(&self.last, place));
        let is_another = went_back || now.len() != self.last.len();
        if !is_another {
            for (place, sum) in self.sums.iter_mut().enumerate() {
                let (before, now) = (at(&self.last, place), at(&now, place));
                let wraps = now < before && TIMES.contains(&place) && before <= u64::from(u32::MAX);
                let now = if wraps { now + (1 << 32) } else { now };
                *sum = sum.saturating_add(now.saturating_sub(before));
            }
        }
        self.last = now;
    }
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Reads the kernel's numbers; none if there are too few, or one is no number.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let numbers = text.split_ascii_whitespace().take(NUMBERS_MAX).map(|number| number.parse().ok());
    numbers.collect::<Option<Vec<u64>>>().filter(|numbers| numbers.len() >= NUMBERS_MIN)
}

/// Returns the directory of the disk below a device. `devices` has a link for each device by its number.
/// A partition and a volume on one device lead to that device, because only disks count flushes. A volume on
/// several devices is the disk itself.
fn disk_below(devices: &Path, device: u64) -> Option<PathBuf> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mut at = fs::canonicalize(devices.join(number)).ok()?;
    for _ in 0..LAYERS_MAX {
        if at.join("partition").exists() {
            at.pop();
            continue;
        }
        let mut below = fs::read_dir(at.join("slaves")).into_iter().flatten().flatten();
        match (below.next(), below.next()) {
            (Some(only), None) => at = fs::canonicalize(only.path()).ok()?,
            _ => break,
        }
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Numbers of a kernel with flushes, each another one.
    fn text(of: std::ops::Range<u64>) -> String {
        of.map(|number| format!(" {number}")).collect::<String>() + "\n"
    }

    /// Old kernels have fewer numbers, newer ones may have more; a text of another form counts as none.
    #[test]
    fn numbers_of_each_kernel_are_read() {
        assert_eq!(numbers(&text(0..11)).unwrap().len(), NUMBERS_MIN);
        assert_eq!(numbers(&text(0..15)).unwrap().len(), 15);
        assert_eq!(numbers(&text(0..17)).unwrap(), (0..17).collect::<Vec<u64>>());
        assert_eq!(numbers(&text(0..40)).unwrap().len(), NUMBERS_MAX);
        // A partition of Linux 2.6 had four.
        for none in
            ["", "\n", " 1 2 3 4\n", "1 2 3 4 5 6 x 8 9 10 11", "1 2 3 4 5 6 -7 8 9 10 11", "\u{1b}[0m"]
        {
            assert_eq!(numbers(none), None, "{none:?}");
        }
        let huge = format!("{}99999999999999999999", "1 ".repeat(16));
        assert_eq!(numbers(&huge), None, "more than 64 bits");
    }

    /// Sums begin at the first reading. Times wrap at 32 bits; a counter that goes back is of a disk that
    /// came back, and adds nothing.
    #[test]
    fn counters_that_wrap_or_restart_keep_the_sums() {
        let mut counted = Counted::from(vec![1_000; 17]);
        assert_eq!(counted.sums, vec![0; 17]);
        counted.add((0..17).map(|place| 1_000 + place).collect());
        assert_eq!(counted.sums, (0..17).collect::<Vec<u64>>());
        // The time of writes wraps.
        let mut counted = Counted::from(vec![u64::from(u32::MAX) - 9; 17]);
        let mut now = vec![u64::from(u32::MAX); 17];
        now[7] = 90;
        counted.add(now.clone());
        assert_eq!((counted.sums[6], counted.sums[7], counted.sums[16]), (9, 100, 9));
        // All begin again.
        counted.add(vec![5; 17]);
        assert_eq!((counted.sums[6], counted.sums[7]), (9, 100));
        counted.add(vec![6; 17]);
        assert_eq!((counted.sums[6], counted.sums[7]), (10, 101));
        // A kernel that is older than the one before, as a machine that moved: no panic, nothing invented.
        counted.add(vec![7; 11]);
        counted.add(vec![8; 17]);
        assert_eq!((counted.sums[6], counted.sums[15]), (10, 10));
        let mut large = Counted::from(vec![0; 11]);
        large.add(vec![u64::MAX; 11]);
        large.add(vec![u64::MAX; 11]);
        assert_eq!(large.sums, vec![u64::MAX; 11]);
    }

    /// A partition and a volume on it lead to the disk; a volume on two disks is one itself.
    #[test]
    fn disk_of_a_partition_or_volume_is_found() {
        let sys = tempfile::tempdir().unwrap();
        let (devices, block) = (sys.path().join("dev"), sys.path().join("block"));
        for made in [
            "dev",
            "block/sda/sda1",
            "block/sda/slaves",
            "block/dm-0/slaves",
            "block/md0/slaves",
            "block/sdb",
        ] {
            fs::create_dir_all(sys.path().join(made)).unwrap();
        }
        fs::write(block.join("sda/sda1/partition"), "1\n").unwrap();
        symlink(block.join("sda/sda1"), block.join("dm-0/slaves/sda1")).unwrap();
        symlink(block.join("sda"), block.join("md0/slaves/sda")).unwrap();
        symlink(block.join("sdb"), block.join("md0/slaves/sdb")).unwrap();
        for (number, disk) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("253:0", "dm-0"), ("9:0", "md0")] {
            symlink(block.join(disk), devices.join(number)).unwrap();
        }
        let found = |major, minor| {
            let disk = disk_below(&devices, rustix::fs::makedev(major, minor))?;
            Some(disk.file_name().unwrap().to_string_lossy().into_owned())
        };
        assert_eq!(found(8, 0).unwrap(), "sda");
        assert_eq!(found(8, 1).unwrap(), "sda");
        assert_eq!(found(253, 0).unwrap(), "sda");
        assert_eq!(found(9, 0).unwrap(), "md0");
        // A file system without a device, and a circle that no kernel makes.
        assert_eq!(found(0, 42), None);
        fs::create_dir_all(block.join("loop/slaves")).unwrap();
        symlink(block.join("loop"), block.join("loop/slaves/loop")).unwrap();
        symlink(block.join("loop"), devices.join("7:0")).unwrap();
        assert_eq!(found(7, 0).unwrap(), "loop");
    }

    /// A text that is gone leaves the sums, and a file system without a disk has no counters.
    #[test]
    fn disk_that_is_away_keeps_its_sums() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("stat");
        let counted = Mutex::new(Counted::from(numbers(&text(0..11)).unwrap()));
        let disk = DataDisk { name: "sda".to_owned(), text: path.clone(), counted };
        fs::write(&path, text(10..21)).unwrap();
        let names = |samples: &[Sample]| samples.iter().flat_map(Sample::shown).collect::<Vec<_>>();
        let first = names(&disk.samples());
        assert!(first.contains(&("disk_writes".to_owned(), 10)), "{first:?}");
        assert!(first.contains(&("disk_read_bytes".to_owned(), 5120)), "{first:?}");
        assert!(!first.iter().any(|(name, _)| name.contains("flush")), "{first:?}");
        for text in [None, Some("nonsense")] {
            let _gone = fs::remove_file(&path);
            if let Some(text) = text {
                fs::write(&path, text).unwrap();
            }
            assert_eq!(names(&disk.samples()), first);
        }
        assert!(DataDisk::of(Path::new("/proc")).is_none());
        assert!(DataDisk::of(Path::new("/no-such-directory")).is_none());
    }
}
