//! Commands to read and write files on storage elements: the places, and the envelopes for them.

use std::sync::Arc;

use exacat_model::answer::SeUsage;
use exacat_model::operation::{FileRef, SeChoice};
use exacat_model::{
    AccountName, Answer, Checksum, ChecksumAlgorithm, Checksums, Guid, Lfn, Operation, SeName,
};
use exacat_wire::jalien::{Item, Options, errno};

use super::replicas::{member, places};
use super::{missing, options};
use crate::envelopes::{Access, Sealed, Subject, is_own_place, md5_text};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell, unexpected};
use crate::faces::jalien::texts;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "access",
        usage: "[-s SIZE] [-m MD5] [-j JOB] [-f] [-u] read|write LFN|GUID [SPEC,…]\nTells where a file may be read, or reserves where it may be written, with an \
                envelope for each place.\n  SPEC is a storage element (A::B::C), one not to be used (!A::B::C), or how many of a label (disk:2)\n  \
                -f only the storage elements that are named",
        run: |s, o| Box::pin(access(s, o)),
    },
    Command {
        name: "commit",
        usage: "ENVELOPE SIZE LFN PERM EXPIRE PFN SE GUID MD5\nMakes a file visible that was written with an envelope, or adds a replica to it.",
        run: |s, o| Box::pin(commit(s, o)),
    },
];

/// A client's wishes for places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Specs {
    wanted: Vec<SeName>,
    excluded: Vec<SeName>,
    labels: Vec<(AccountName, u32)>,
}

impl Specs {
    fn parse(text: &str) -> Outcome<Self> {
        let mut specs = Specs::default();
        for one in text.split([',', ';']).map(str::trim).filter(|one| !one.is_empty()) {
            if let Some(excluded) = one.strip_prefix('!') {
                specs.excluded.push(SeName::parse(excluded)?);
            } else if one.contains("::") {
                specs.wanted.push(SeName::parse(one)?);
            } else {
                let bad =
                    || Failure::invalid(format!("neither a storage element nor LABEL:COUNT: {one:.100}"));
                let (label, count) = one.split_once([':', '=']).unwrap_or((one, "1"));
                specs.labels.push((AccountName::parse(label)?, count.parse().map_err(|_| bad())?));
            }
        }
        Ok(specs)
    }
}

impl Specs {
    /// Refuses a missing storage element: a misspelt one would silently store the file elsewhere.
    async fn check_known(&self, shell: &mut Shell) -> Outcome {
        if self.wanted.is_empty() && self.excluded.is_empty() {
            return Ok(());
        }
        let lacks = |ses: &[SeUsage]| {
            let named = self.wanted.iter().chain(&self.excluded);
            named.filter(|name| ses.iter().all(|se| se.se.name != **name)).cloned().collect::<Vec<SeName>>()
        };
        if lacks(&shell.ses().await?).is_empty() {
            return Ok(());
        }
        // An operator may have added one a moment ago.
        let ses = shell.ses_now().await?;
        let Some(unknown) = lacks(&ses).into_iter().next() else { return Ok(()) };
        Err(Failure::invalid(format!("no such storage element: {unknown} (listSEs names all)")))
    }
}

async fn access(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["f", "u"], &["s", "m", "j"], given)?;
    let (what, file, specs) = match options.rest.as_slice() {
        [what, file] => (what, file, ""),
        [what, file, specs] => (what, file, specs.as_str()),
        _ => return Err(missing("access")),
    };
    if options.has("u") {
        return Err(Failure::invalid("-u: places are told as the storage elements have them"));
    }
    let specs = Specs::parse(specs)?;
    specs.check_known(shell).await?;
    match what.as_str() {
        "read" => read(shell, file, &specs, options.has("f")).await,
        what if what.starts_with("write") => write(shell, file, specs, &options).await,
        _ => Err(missing("access")),
    }
}

/// One place, as reported to the client.
struct ReplicaPlace<'a> {
    access: Access,
    lfn: &'a Lfn,
    guid: Guid,
    se: SeName,
    pfn: String,
    /// GUID of the content there: the file's, or its archive's.
    stored: Guid,
    /// Name inside the archive that the place is of.
    member: Option<String>,
    size: u64,
    md5: Option<Checksum>,
    of: usize,
}

async fn report(shell: &mut Shell, place: ReplicaPlace<'_>) -> Outcome {
    let ses = shell.ses().await?;
    let se = ses.iter().find(|se| se.se.name == place.se).map(|se| &se.se);
    let labels = se
        .map_or_else(String::new, |se| se.qos.iter().map(AccountName::as_str).collect::<Vec<_>>().join(", "));
    let prefix = se.map_or("", |se| se.prefix.as_str());
    let subject = Subject {
        lfn: place.lfn,
        guid: place.guid,
        se: &place.se,
        pfn: &place.pfn,
        size: place.size,
        md5: place.md5.as_ref(),
    };
    let envelope = match is_own_place(&place.pfn, prefix, place.stored) {
        true => shell.face.envelopes.seal(shell.user(), place.access, &subject)?,
        false => String::new(),
    };
    let url = match &place.member {
        Some(member) => format!("{}#{member}", place.pfn),
        None => place.pfn.clone(),
    };
    let item = Item::new()
        .with("envelope", envelope)
        .with("url", url.clone())
        .with("guid", place.guid.to_string())
        .with("se", place.se.as_str())
        .with("tags", format!("[{labels}]"))
        .with("nSEs", place.of.to_string())
        .with("md5", place.md5.as_ref().map(md5_text).unwrap_or_default())
        .with("size", place.size.to_string())
        .saying(url);
    shell.say(item).await
}

async fn read(shell: &mut Shell, text: &str, specs: &Specs, strict: bool) -> Outcome {
    let lfn = match Guid::parse(text) {
        Err(_) => shell.path(text)?,
        Ok(guid) => match shell.ask(Operation::Lfns { guids: vec![guid] }).await? {
            Answer::Lfns(mut found) => found.pop().ok_or_else(unexpected)??,
            _ => return Err(unexpected()),
        },
    };
    let stat = shell.stat(&lfn, true).await?;
    let Some(guid) = stat.entry.file().map(|file| file.guid) else {
        return Err(Failure::invalid(format!("{lfn} is not a file")));
    };
    let inside = member(&stat).map(|(archive, name)| (archive, name.to_owned()));
    if let Some((archive, _)) = &inside {
        // The envelope covers the whole archive, so the caller must be allowed to read that too.
        places(shell, FileRef::Guid(*archive)).await?;
    }
    let whereis = places(shell, FileRef::Guid(guid)).await?;
    let mut found: Vec<(SeName, String)> = Vec::new();
    for replica in &whereis.replicas {
        let Some(se) = replica.se.clone() else { continue };
        // The prefix of that storage element is not known yet.
        if replica.pfn.is_empty() {
            continue;
        }
        if specs.excluded.contains(&se) || (strict && !specs.wanted.contains(&se)) {
            continue;
        }
        found.push((se, replica.pfn.clone()));
    }
    // Requested ones first, those with reported failures last, otherwise in the catalogue's order.
    let face = Arc::clone(&shell.face);
    let doubtful = |se: &SeName| {
        face.service.catalogue.storage_element(se).is_some_and(|se| face.places.is_doubtful(se.number))
    };
    found.sort_by_cached_key(|(se, _)| (!specs.wanted.contains(se), doubtful(se)));
    if found.is_empty() {
        return Err(Failure::new(errno::EBADFD, format!("No read PFNs for {lfn}")));
    }
    shell.face.service.looked_up(&stat.lfn, &whereis, shell.site().as_ref());
    let of = found.len();
    let md5 = whereis.checksums.get(ChecksumAlgorithm::Md5).copied();
    for (se, pfn) in found {
        let stored = inside.as_ref().map_or(guid, |(archive, _)| *archive);
        let (pfn, member) = match &inside {
            Some((_, member)) => {
                let tail = format!("?ZIP={member}");
                (pfn.strip_suffix(&tail).unwrap_or(&pfn).to_owned(), Some(member.clone()))
            }
            None => (pfn, None),
        };
        let size = whereis.size.unwrap_or(0);
        let lfn = &stat.lfn;
        report(
            shell,
            ReplicaPlace { access: Access::Read, lfn, guid, se, pfn, stored, member, size, md5, of },
        )
        .await?;
    }
    Ok(())
}

fn md5_given(text: &str) -> Outcome<Checksum> {
    Ok(Checksum::parse(&format!("md5:{text}"))?)
}

async fn write(shell: &mut Shell, text: &str, specs: Specs, options: &Options) -> Outcome {
    let number = |name: &str, text: &str| {
        text.parse::<u64>().map_err(|_| Failure::invalid(format!("-{name}: not a number: {text:.100}")))
    };
    let size = options.value("s").ok_or_else(|| Failure::invalid("access write takes -s SIZE"))?;
    let size = number("s", size)?;
    let md5 = options.value("m").map(md5_given).transpose()?;
    let job = options.value("j").map(|text| number("j", text)).transpose()?;
    let lfn = shell.path(text)?;
    let checksums = md5.map_or_else(Checksums::none, Checksums::one);
    // An existing file gets further replicas, if it is the same file.
    let guid = match shell.stat_if_there(&lfn).await? {
        None => None,
        Some(stat) => {
            let other = || {
                Failure::invalid(format!(
                    "You seem to want to write a different file from the existing one in the catalogue: {lfn}"
                ))
            };
            let file = stat.entry.file().ok_or_else(other)?;
            let same_size = file.size == Some(size);
            let known = file.checksums.get(ChecksumAlgorithm::Md5);
            if !same_size || md5.is_none() || known != md5.as_ref() {
                return Err(other());
            }
            Some(file.guid)
        }
    };
    let mut choice =
        SeChoice { wanted: specs.wanted, qos: specs.labels, excluded: specs.excluded, site: shell.site() };
    let upload = loop {
        let reserve = Operation::UploadReserve {
            lfn: lfn.clone(),
            guid,
            size,
            checksums: checksums.clone(),
            job,
            choice: Box::new(choice.clone()),
            lifetime_seconds: None,
        };
        match shell.ask(reserve).await {
            Ok(Answer::Upload(upload)) => break upload,
            Ok(_) => return Err(unexpected()),
            // Fewer places than requested are better than none.
            Err(failure) if failure.number == NO_PLACE && !options.has("f") && fewer(&mut choice) => {}
            Err(failure) if failure.number == NO_PLACE => {
                return Err(Failure::new(
                    errno::EBADFD,
                    format!("No write PFNs for {lfn}: {}", failure.detail),
                ));
            }
            Err(failure) => return Err(failure),
        }
    };
    let of = upload.targets.len();
    for target in upload.targets {
        let place = ReplicaPlace {
            access: Access::Write,
            lfn: &lfn,
            guid: upload.reservation.guid,
            se: target.se,
            pfn: target.pfn,
            stored: upload.reservation.guid,
            member: None,
            size,
            md5,
            of,
        };
        report(shell, place).await?;
    }
    Ok(())
}

/// Error number for too few storage elements.
const NO_PLACE: i32 = 16;

/// Requests one place less, of the label with the most; false if none can be left out.
fn fewer(choice: &mut SeChoice) -> bool {
    let total: u64 = choice.qos.iter().map(|(_, count)| u64::from(*count)).sum();
    if total + choice.wanted.len() as u64 <= 1 {
        return false;
    }
    match choice.qos.iter_mut().max_by_key(|(_, count)| *count) {
        Some((_, count)) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => choice.wanted.pop().is_some(),
    }
}

async fn commit(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let refused = |why: &str| Failure::new(errno::EBADR, format!("Nothing was registered: {why}"));
    // Arguments are positional here, and may start with a dash.
    let [sealed, rest @ ..] = given.as_slice() else { return Err(missing("commit")) };
    let word = |at: usize| rest.get(at).map(String::as_str).filter(|word| !word.is_empty());
    let Some(sealed) = shell.face.envelopes.open_written(sealed) else {
        return Err(refused("the envelope is none that was given out here"));
    };
    let other = |what: &str| refused(&format!("the envelope is for another {what}"));
    let size = match word(0) {
        None | Some("0") => sealed.size,
        Some(text) => text.parse().map_err(|_| other("size"))?,
    };
    if size != sealed.size {
        return Err(other("size"));
    }
    if let Some(text) = word(1)
        && shell.path(text).ok().as_ref() != Some(&sealed.lfn)
    {
        return Err(other("name"));
    }
    if word(5).is_some_and(|se| se != sealed.se.as_str()) {
        return Err(other("storage element"));
    }
    if word(6).is_some_and(|guid| Guid::parse(guid).ok() != Some(sealed.guid)) {
        return Err(other("GUID"));
    }
    let md5 = match (word(7), &sealed.md5) {
        (Some(given), Some(known)) if !given.eq_ignore_ascii_case(known) => return Err(other("MD5")),
        (given, known) => given.or(known.as_deref()).map(md5_given).transpose()?,
    };
    let checksums = md5.map_or_else(Checksums::none, Checksums::one);
    let commit = Operation::UploadCommit { guid: sealed.guid, se: sealed.se.clone(), size, checksums };
    let done = shell.ask(commit).await;
    let registered = match done {
        Ok(Answer::Done { .. }) => true,
        Ok(_) => return Err(unexpected()),
        // A client that lost the answer may repeat the commit: an existing replica is success.
        Err(failure) if failure.number == errno::ENOENT => is_there(shell, &sealed).await?,
        Err(failure) if failure.number == AGAIN_LATER || failure.number == errno::EAGAIN => {
            return Err(failure);
        }
        Err(failure) => return Err(refused(&failure.detail)),
    };
    if !registered {
        return Err(refused("nothing is reserved for it any more"));
    }
    let path = sealed.lfn.as_str();
    let item = Item::new()
        .with("path", path)
        .with("lfn", "1")
        .with("pfn", word(4).unwrap_or_default())
        .saying(format!("{path} 1"));
    shell.say(item).await
}

/// Error number for an unknown outcome.
const AGAIN_LATER: i32 = 110;

/// True if the replica of an envelope exists.
async fn is_there(shell: &mut Shell, sealed: &Sealed) -> Outcome<bool> {
    let found = match places(shell, FileRef::Guid(sealed.guid)).await {
        Ok(found) => found,
        Err(failure) if failure.number == errno::ENOENT => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let same_md5 = sealed.md5.as_ref().is_none_or(|md5| texts::md5(&found.checksums) == *md5);
    let on = |replica: &exacat_model::answer::ReplicaAt| replica.se.as_ref() == Some(&sealed.se);
    Ok(found.size == Some(sealed.size) && same_md5 && found.replicas.iter().any(on))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::errors::errno as errno_of;
    use exacat_model::ErrorKind;

    #[test]
    fn specifications_are_read_as_jalien_reads_them() {
        let specs = Specs::parse("disk:2,ALICE::CERN::EOS,!ALICE::A::B,tape=1,custom").unwrap();
        let label = |name: &str| AccountName::parse(name).unwrap();
        assert_eq!(specs.labels, [(label("disk"), 2), (label("tape"), 1), (label("custom"), 1)]);
        assert_eq!(specs.wanted, [SeName::parse("ALICE::CERN::EOS").unwrap()]);
        assert_eq!(specs.excluded, [SeName::parse("ALICE::A::B").unwrap()]);
        assert_eq!(Specs::parse("").unwrap(), Specs::default());
        assert!(Specs::parse("disk:many").is_err());
        assert!(Specs::parse("!").is_err());
    }

    #[test]
    fn fewer_places_are_asked_for_down_to_one() {
        let label = |name: &str| AccountName::parse(name).unwrap();
        let mut choice =
            SeChoice { qos: vec![(label("disk"), 2), (label("tape"), 1)], ..SeChoice::default() };
        assert!(fewer(&mut choice) && fewer(&mut choice));
        assert_eq!(choice.qos.iter().map(|(_, count)| count).sum::<u32>(), 1);
        assert!(!fewer(&mut choice));
    }

    #[test]
    fn the_numbers_of_errors_are_those_of_the_table() {
        assert_eq!(errno_of(ErrorKind::Unavailable).1, NO_PLACE);
        assert_eq!(errno_of(ErrorKind::Unknown).1, AGAIN_LATER);
        assert_eq!(errno_of(ErrorKind::Busy).1, errno::EAGAIN);
        assert_eq!(errno_of(ErrorKind::NotFound).1, errno::ENOENT);
    }
}
