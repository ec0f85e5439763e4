//! An invented catalogue like that of an experiment: raw data by year, period and run,
//! reconstructed passes, simulations with several replicas, users' homes, archives with their
//! members, tags and collections.
//!
//! For samples, benchmarks and tests. It is a pure function of the settings: the same seed gives
//! the same items for ever, so nothing here uses numbers from elsewhere. Items come one by one:
//! each directory before its content, each archive before its members, each collection after its
//! files. Memory holds one block of a few hundred items, whatever the total size.

use std::collections::VecDeque;

use exacat_model::operation::{NewFile, NewReplica, SeSettings};
use exacat_model::{
    AccountName, Checksum, ChecksumAlgorithm, Checksums, FileRef, Guid, Lfn, Mode, Name, Pfn, ReplicaState,
    Result, SeName, SeStatus, Tag, TagKey, TagValue, TimeMs,
};

/// Runs of one data-taking period, and run groups of one simulation production.
const RUNS_PER_PERIOD: u64 = 12;
/// Periods of one year.
const PERIODS_PER_YEAR: u64 = 8;
const FIRST_YEAR: u64 = 2026;
const FIRST_RUN: u64 = 560_123;
const FIRST_JOB: u64 = 3_100_000_000;
/// 2026-03-01T00:00:00Z.
const FIRST_TIME_MS: u64 = 1_772_323_200_000;
/// Time from one run to the next.
const RUN_MS: u64 = 2 * 3_600_000;
const MEGABYTE: u64 = 1_000_000;

/// Users with homes, in alphabetical order.
const USERS: [&str; 12] = [
    "alice.moreau",
    "aleksy",
    "bruno",
    "chiara",
    "dmitri",
    "elena",
    "farid",
    "grace",
    "hiro",
    "ines",
    "jonas",
    "zofia",
];

/// Storage elements: site, name, quality of service, and percentage of simulated files with a
/// replica there.
const SES: [(&str, &str, &str, u64); 8] = [
    ("CERN", "EOS", "disk", 55),
    ("CERN", "CTA", "tape", 0),
    ("FZK", "SE", "disk", 40),
    ("CNAF", "SE", "disk", 35),
    ("CCIN2P3", "SE", "disk", 30),
    ("NDGF", "DCACHE", "disk", 25),
    ("ORNL", "EOS", "disk", 20),
    ("KISTI", "TAPE", "tape", 10),
];

/// Positions of the sites above; the difference of two is their distance.
const SITE_DISTANCES: [(&str, u32); 7] =
    [("CERN", 0), ("CCIN2P3", 10), ("CNAF", 12), ("FZK", 14), ("NDGF", 25), ("ORNL", 80), ("KISTI", 100)];

/// Settings of an invented catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSettings {
    /// Seed; another seed gives another catalogue of the same kind.
    pub seed: u64,
    /// Number of items: directories, files and collections.
    pub entries: u64,
    /// Directory of all items; it is the first item.
    pub root: Lfn,
}

/// An item of an invented catalogue.
#[derive(Clone, Debug, PartialEq)]
pub enum TreeItem {
    /// A directory with its tags.
    Directory {
        /// Its path.
        lfn: Lfn,
        /// Its owner; none for the caller.
        owner: Option<AccountName>,
        /// Its tags.
        tags: Vec<Tag>,
    },
    /// A file.
    File(Box<NewFile>),
    /// A collection of earlier files.
    Collection {
        /// Its path.
        lfn: Lfn,
        /// Its tags.
        tags: Vec<Tag>,
        /// Its members.
        members: Vec<FileRef>,
    },
}

impl TreeItem {
    /// Returns the path.
    pub fn lfn(&self) -> &Lfn {
        match self {
            TreeItem::Directory { lfn, .. } | TreeItem::Collection { lfn, .. } => lfn,
            TreeItem::File(file) => &file.lfn,
        }
    }
}

/// Returns the storage elements of the replicas of any [`Tree`], to be registered first.
pub fn storage_elements() -> Result<Vec<SeSettings>> {
    let position =
        |site: &str| SITE_DISTANCES.iter().find(|(name, _)| *name == site).map_or(0, |(_, at)| *at);
    SES.iter()
        .map(|(site, name, qos, _)| {
            let distances = SITE_DISTANCES
                .iter()
                .map(|(other, at)| Ok((AccountName::parse(other)?, position(site).abs_diff(*at))))
                .collect::<Result<Vec<_>>>()?;
            Ok(SeSettings {
                name: se_name(site, name)?,
                number: None,
                prefix: Some(format!(
                    "root://{}-{}.example.org//demo",
                    name.to_ascii_lowercase(),
                    site.to_ascii_lowercase()
                )),
                qos: Some(vec![AccountName::parse(qos)?]),
                status: Some(SeStatus::Online),
                distances,
                https: None,
                only_new: false,
            })
        })
        .collect()
}

/// Returns the users that own the homes, to be registered first.
pub fn users() -> Result<Vec<AccountName>> {
    USERS.iter().map(|name| AccountName::parse(name)).collect()
}

fn se_name(site: &str, name: &str) -> Result<SeName> {
    SeName::parse(&format!("DEMO::{site}::{name}"))
}

/// Items of an invented catalogue, one by one. An item is an error only if the settings' root is so
/// long that names below it exceed the limits.
pub struct Tree {
    settings: TreeSettings,
    ses: Vec<SeName>,
    next_block: u64,
    given: u64,
    block: VecDeque<TreeItem>,
}

impl Tree {
    /// Makes the catalogue of these settings.
    pub fn new(settings: TreeSettings) -> Result<Self> {
        let ses = SES.iter().map(|(site, name, ..)| se_name(site, name)).collect::<Result<Vec<_>>>()?;
        Ok(Tree { settings, ses, next_block: 0, given: 0, block: VecDeque::new() })
    }

    /// Makes the next block: the top directories, then runs, simulations and homes in turn.
    fn fill(&mut self) -> Result<()> {
        let number = self.next_block;
        self.next_block += 1;
        let mut block = Block {
            root: &self.settings.root,
            ses: &self.ses,
            random: Random::new(self.settings.seed, number),
            items: &mut self.block,
        };
        let Some(turn) = number.checked_sub(1) else {
            return block.tops();
        };
        match turn % 4 {
            0 => block.run(turn / 4),
            1 => block.simulation(turn / 4 * 2),
            2 => block.simulation(turn / 4 * 2 + 1),
            _ => block.home(turn / 4),
        }
    }
}

impl Iterator for Tree {
    type Item = Result<TreeItem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.given >= self.settings.entries {
            return None;
        }
        while self.block.is_empty() {
            if let Err(error) = self.fill() {
                self.given = self.settings.entries;
                return Some(Err(error));
            }
        }
        self.given += 1;
        self.block.pop_front().map(Ok)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.settings.entries - self.given).unwrap_or(usize::MAX);
        (0, Some(left))
    }
}

/// SplitMix64: a sequence that is the same on every machine, in every release.
struct Random(u64);

impl Random {
    fn new(seed: u64, block: u64) -> Self {
        let mut random = Random(seed ^ block.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a size around `typical` with a long tail: from a quarter of it to four times it,
    /// mostly near it.
    fn size(&mut self, typical: u64) -> u64 {
        let octaves = self.below(1024) + self.below(1024) + self.below(1024) + self.below(1024);
        let factor = ((octaves as f64) / 1024.0 - 2.0).exp2();
        (typical as f64 * factor) as u64
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}

/// A block in progress.
struct Block<'a> {
    root: &'a Lfn,
    ses: &'a [SeName],
    random: Random,
    items: &'a mut VecDeque<TreeItem>,
}

fn tag(key: &str, value: TagValue) -> Result<Tag> {
    Ok(Tag { key: TagKey::parse(key)?, value })
}

fn text(value: &str) -> TagValue {
    TagValue::Text(value.to_owned())
}

fn whole(value: u64) -> TagValue {
    TagValue::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn child(lfn: &Lfn, name: &str) -> Result<Lfn> {
    // Parsed again to check the limits, because a root may be long already.
    Lfn::parse(lfn.join(&Name::parse(name)?).as_str())
}

impl Block<'_> {
    fn below(&self, path: &str) -> Result<Lfn> {
        path.split('/').try_fold(self.root.clone(), |lfn, name| child(&lfn, name))
    }

    fn directory(&mut self, lfn: Lfn, mut tags: Vec<Tag>) {
        tags.sort_by(|one, other| one.key.cmp(&other.key));
        self.items.push_back(TreeItem::Directory { lfn, owner: None, tags });
    }

    fn file(&mut self, file: NewFile) {
        self.items.push_back(TreeItem::File(Box::new(file)));
    }

    /// Makes a file with invented content, without replicas.
    fn content(&mut self, lfn: Lfn, typical_size: u64, time: TimeMs) -> Result<NewFile> {
        let mut checksums =
            Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &self.random.bytes::<16>())?);
        if self.random.percent(30) {
            checksums.add(Checksum::new(ChecksumAlgorithm::Adler32, &self.random.bytes::<4>())?)?;
        }
        let modified = time.plus_ms(self.random.below(RUN_MS));
        Ok(NewFile {
            guid: Some(Guid::v7(modified, self.random.bytes())),
            size: Some(self.random.size(typical_size)),
            checksums,
            mode: Some(Mode::FILE),
            modified: Some(modified),
            ..NewFile::named(lfn)
        })
    }

    fn replica(&mut self, se: usize) -> Option<NewReplica> {
        let state = match self.random.below(1000) {
            0..4 => ReplicaState::Lost,
            4..10 => ReplicaState::Suspect,
            _ => ReplicaState::Available,
        };
        Some(NewReplica { se: self.ses.get(se)?.clone(), pfn: None, state })
    }

    /// Makes replicas by the percentages of the storage elements; at least one.
    fn spread(&mut self) -> Vec<NewReplica> {
        let mut replicas = Vec::new();
        for (se, (.., percent)) in SES.iter().enumerate() {
            if self.random.percent(*percent) {
                replicas.extend(self.replica(se));
            }
        }
        if replicas.is_empty() {
            replicas.extend(self.replica(0));
        }
        replicas
    }

    /// Makes an archive of logs, or of results, and its members.
    fn archive(
        &mut self,
        directory: &Lfn,
        name: &str,
        parts: &[(&str, u64)],
        job: u64,
        time: TimeMs,
    ) -> Result<()> {
        let typical = parts.iter().map(|(_, size)| size).sum();
        let mut archive = self.content(child(directory, name)?, typical, time)?;
        archive.replicas = self.spread();
        archive.job = Some(job);
        let guid = archive.guid;
        self.file(archive);
        for (part, size) in parts {
            let mut member = self.content(child(directory, part)?, *size, time)?;
            member.job = Some(job);
            member.member_of = guid.map(|guid| (FileRef::Guid(guid), (*part).to_owned()));
            self.file(member);
        }
        Ok(())
    }

    fn tops(&mut self) -> Result<()> {
        self.directory(self.root.clone(), vec![tag("experiment", text("demo"))?]);
        for name in ["data", "sim", "user", "collections"] {
            let lfn = self.below(name)?;
            self.directory(lfn, Vec::new());
        }
        let mut letter = "";
        for name in USERS {
            if name[..1] != *letter {
                letter = &name[..1];
                let lfn = self.below(&format!("user/{letter}"))?;
                self.directory(lfn, Vec::new());
            }
            let lfn = self.below(&format!("user/{letter}/{name}"))?;
            let owner = Some(AccountName::parse(name)?);
            self.items.push_back(TreeItem::Directory { lfn, owner, tags: Vec::new() });
        }
        Ok(())
    }

    /// Makes one run: its raw files, one reconstruction pass, and a collection of the files that
    /// analyses read.
    fn run(&mut self, number: u64) -> Result<()> {
        let (period_number, in_period) = (number / RUNS_PER_PERIOD, number % RUNS_PER_PERIOD);
        let year = FIRST_YEAR + period_number / PERIODS_PER_YEAR;
        let letter = char::from(b'a' + (period_number % PERIODS_PER_YEAR) as u8);
        let period = format!("LHC{}{letter}", year % 100);
        let run = FIRST_RUN + number * 7;
        let time = TimeMs(FIRST_TIME_MS).plus_ms(number.saturating_mul(RUN_MS));
        if in_period == 0 {
            if period_number % PERIODS_PER_YEAR == 0 {
                let lfn = self.below(&format!("data/{year}"))?;
                self.directory(lfn, vec![tag("year", whole(year))?]);
            }
            let beam = if letter == 'h' { "PbPb" } else { "pp" };
            let lfn = self.below(&format!("data/{year}/{period}"))?;
            let tags = vec![tag("period", text(&period))?, tag("beam", text(beam))?];
            self.directory(lfn, tags);
            let lfn = self.below(&format!("collections/{period}"))?;
            self.directory(lfn, Vec::new());
        }
        let home = self.below(&format!("data/{year}/{period}/{run:09}"))?;
        let tags = vec![
            tag("run", whole(run))?,
            tag("energy_gev", TagValue::Real(6800.0))?,
            tag("good", TagValue::Boolean(self.random.percent(92)))?,
            tag("started", TagValue::Time(time))?,
        ];
        self.directory(home.clone(), tags);
        let (raw, pass) = (child(&home, "raw")?, child(&home, "pass1")?);
        self.directory(raw.clone(), vec![tag("type", text("raw"))?]);
        let mut segments = Vec::new();
        for segment in 0..10 + self.random.below(30) {
            let name = format!("{:02}{run:09}{:03}.{}", year % 100, 19 + segment % 4, 1001 + segment);
            let mut file = self.content(child(&raw, &format!("{name}.root"))?, 2300 * MEGABYTE, time)?;
            // Written to disk, then copied to tape; some disk copies are gone by now.
            file.replicas.extend(self.replica(1));
            if self.random.percent(40) {
                file.replicas.extend(self.replica(0));
            }
            segments.push(name);
            self.file(file);
        }
        self.directory(pass.clone(), vec![tag("type", text("reconstructed"))?, tag("pass", whole(1))?]);
        let mut analysed = Vec::new();
        for (index, segment) in (0..).zip(segments.iter().step_by(2)) {
            let job = FIRST_JOB + number * 100 + index;
            let place = child(&pass, segment)?;
            self.directory(place.clone(), Vec::new());
            let mut file = self.content(child(&place, "AOD.root")?, 900 * MEGABYTE, time)?;
            file.replicas = self.spread();
            file.job = Some(job);
            analysed.push(FileRef::Lfn(file.lfn.clone()));
            self.file(file);
            let mut checks = self.content(child(&place, "QAresults.root")?, 20 * MEGABYTE, time)?;
            checks.replicas = self.spread();
            checks.job = Some(job);
            self.file(checks);
            let parts = [("stdout.log", MEGABYTE / 2), ("stderr.log", 20_000), ("reco.log", 3 * MEGABYTE)];
            self.archive(&place, "log_archive.zip", &parts, job, time)?;
        }
        let tags = vec![tag("run", whole(run))?, tag("type", text("AOD"))?];
        let lfn = self.below(&format!("collections/{period}/{run:09}_pass1_AOD"))?;
        self.items.push_back(TreeItem::Collection { lfn, tags, members: analysed });
        Ok(())
    }

    /// Makes the jobs that simulated one run.
    fn simulation(&mut self, number: u64) -> Result<()> {
        let (production_number, in_production) = (number / RUNS_PER_PERIOD, number % RUNS_PER_PERIOD);
        let year = FIRST_YEAR + production_number / PERIODS_PER_YEAR;
        let letter = char::from(b'a' + (production_number % PERIODS_PER_YEAR) as u8);
        let production = format!("LHC{}{letter}1", year % 100);
        let time = TimeMs(FIRST_TIME_MS).plus_ms(number.saturating_mul(RUN_MS));
        let run = FIRST_RUN + number / 2 * 7;
        let base = format!("sim/{year}/{production}");
        if in_production == 0 {
            if production_number % PERIODS_PER_YEAR == 0 {
                let lfn = self.below(&format!("sim/{year}"))?;
                self.directory(lfn, vec![tag("year", whole(year))?]);
            }
            let generator = if self.random.percent(70) { "pythia8" } else { "epos" };
            let lfn = self.below(&base)?;
            let tags = vec![
                tag("production", text(&production))?,
                tag("generator", text(generator))?,
                tag("type", text("simulated"))?,
            ];
            self.directory(lfn, tags);
        }
        let home = self.below(&format!("{base}/{run}-{}", number % 2))?;
        self.directory(home.clone(), vec![tag("run", whole(run))?]);
        for index in 1..=10 + self.random.below(20) {
            let job = FIRST_JOB + 1_000_000_000 + number * 100 + index;
            let place = child(&home, &format!("{index:03}"))?;
            self.directory(place.clone(), Vec::new());
            let mut file = self.content(child(&place, "AOD.root")?, 250 * MEGABYTE, time)?;
            file.replicas = self.spread();
            file.job = Some(job);
            self.file(file);
            let parts =
                [("galice.root", 2 * MEGABYTE), ("Kinematics.root", 60 * MEGABYTE), ("sim.log", MEGABYTE)];
            self.archive(&place, "root_archive.zip", &parts, job, time)?;
        }
        Ok(())
    }

    /// Makes one analysis in a user's home.
    fn home(&mut self, number: u64) -> Result<()> {
        let users = USERS.len() as u64;
        let name = USERS[(number % users) as usize];
        let owner = Some(AccountName::parse(name)?);
        let time = TimeMs(FIRST_TIME_MS).plus_ms(number.saturating_mul(RUN_MS));
        let place = self.below(&format!("user/{}/{name}/analysis_{:04}", &name[..1], number / users))?;
        self.items.push_back(TreeItem::Directory {
            lfn: place.clone(),
            owner: owner.clone(),
            tags: vec![tag("status", text(if self.random.percent(80) { "done" } else { "draft" }))?],
        });
        for index in 0..20 + self.random.below(60) {
            let (part, typical) = match index {
                0 => ("run analysis.C".to_owned(), 6_000),
                1 => ("Zażółć notatki.txt".to_owned(), 2_000),
                2 => ("100% merged;final?.root".to_owned(), 80 * MEGABYTE),
                _ => (format!("AnalysisResults_{index:03}.root"), 15 * MEGABYTE),
            };
            let mut file = self.content(child(&place, &part)?, typical, time)?;
            file.owner.clone_from(&owner);
            file.replicas.extend(self.replica((number as usize + 2) % SES.len()));
            match index {
                // Made elsewhere and registered with its PFN there.
                3..5 => {
                    for replica in &mut file.replicas {
                        let pfn = format!("root://old.example.org//store/{name}/{part}");
                        replica.pfn = Some(Pfn::parse(&pfn)?);
                    }
                }
                5 => file.expires = Some(TimeMs(FIRST_TIME_MS).plus_ms(50 * 365 * 86_400_000)),
                // Registered by hand: only the name is known.
                6 => (file.size, file.checksums) = (None, Checksums::none()),
                _ => {}
            }
            self.file(file);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn tree(seed: u64, entries: u64) -> Vec<TreeItem> {
        let root = Lfn::parse("/demo").unwrap();
        Tree::new(TreeSettings { seed, entries, root }).unwrap().collect::<Result<_>>().unwrap()
    }

    #[test]
    fn a_tree_is_whole_of_the_size_asked_and_the_same_for_a_seed() {
        for entries in [0, 1, 30, 20_000] {
            assert_eq!(tree(7, entries).len() as u64, entries);
        }
        assert_eq!(tree(7, 5_000), tree(7, 5_000));
        assert_ne!(tree(7, 5_000), tree(8, 5_000));
        assert_eq!(tree(7, 5_000), tree(7, 20_000)[..5_000], "a longer one begins as a shorter one");
    }

    #[test]
    fn what_an_item_needs_comes_before_it() {
        let ses: BTreeSet<_> = storage_elements().unwrap().into_iter().map(|se| se.name).collect();
        let owners: BTreeSet<_> = users().unwrap().into_iter().collect();
        let (mut directories, mut files) = (BTreeSet::new(), BTreeMap::new());
        let mut guids = BTreeSet::new();
        let mut kinds = [0u32; 4];
        for item in tree(1, 30_000) {
            let lfn = item.lfn().clone();
            let parent = lfn.parent().unwrap();
            assert!(parent.is_root() || directories.contains(&parent), "{lfn}: no parent");
            assert!(!directories.contains(&lfn) && !files.contains_key(&lfn), "{lfn}: twice");
            match item {
                TreeItem::Directory { tags, .. } => {
                    assert!(tags.is_sorted_by(|one, next| one.key < next.key));
                    kinds[0] += 1;
                    directories.insert(lfn);
                }
                TreeItem::File(file) => {
                    kinds[1] += 1;
                    let guid = file.guid.unwrap();
                    assert!(guids.insert(guid), "{lfn}: GUID twice");
                    assert!(file.owner.iter().all(|owner| owners.contains(owner)));
                    assert!(file.replicas.iter().all(|replica| ses.contains(&replica.se)));
                    let on: BTreeSet<_> = file.replicas.iter().map(|replica| &replica.se).collect();
                    assert_eq!(on.len(), file.replicas.len(), "{lfn}: two replicas on one SE");
                    match &file.member_of {
                        Some((FileRef::Guid(archive), _)) => {
                            kinds[2] += 1;
                            assert!(guids.contains(archive) && file.replicas.is_empty());
                        }
                        _ => assert!(!file.replicas.is_empty()),
                    }
                    files.insert(lfn, guid);
                }
                TreeItem::Collection { members, .. } => {
                    kinds[3] += 1;
                    assert!(!members.is_empty());
                    for member in &members {
                        assert!(matches!(member, FileRef::Lfn(lfn) if files.contains_key(lfn)));
                    }
                    files.insert(lfn, Guid([0; 16]));
                }
            }
        }
        assert!(kinds.iter().all(|count| *count > 20), "{kinds:?}");
    }

    #[test]
    fn a_root_too_long_is_an_error_not_an_endless_tree() {
        let root = Lfn::parse(&format!("/{}", ["x"; 510].join("/"))).unwrap();
        let items: Vec<_> = Tree::new(TreeSettings { seed: 0, entries: 1000, root }).unwrap().collect();
        assert!(items.last().unwrap().is_err());
        assert!(items.len() < 1000);
    }
}
