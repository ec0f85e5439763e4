//! `cp`: copies files between this machine and storage elements, through the catalogue. The client
//! of XRootD moves the bytes ([`program`]). This module chooses the replicas to read and the places
//! to write, and checks the result ([`content`]).

mod content;
mod place;
mod program;

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use exacat_model::answer::{Stat, Whereis};
use exacat_model::operation::FileRef;
use exacat_model::{
    AccountName, Answer, ChecksumAlgorithm, Checksums, Error, ErrorKind, Guid, Lfn, Location, Operation,
    ReplicaState, SeName, TokenId,
};
use exacat_wire::json;
use serde::Serialize;
use utoipa::ToSchema;

use self::content::Content;
use self::place::{Side, Spec, Wish};
use self::program::Program;
use crate::args::{CpArgs, Global};
use crate::connect::{certificate, root_url, token};
use crate::context::Context;
use crate::failure::{Failure, say};
use crate::output::human;
use crate::progress::Bar;

/// Maximum lifetime of a token made for one command.
const TOKEN_SECONDS: u64 = 24 * 3600;
/// Time limit for a written file to be found whole: its storage element reads it for its checksum.
const WHOLE_WITHIN: Duration = Duration::from_secs(600);
/// First interval of these checks.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Longest interval of them.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(5);
/// Checksums of written files: storage elements make the first, `alien.py` asks for the second.
const MADE: [ChecksumAlgorithm; 2] = [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5];

/// File that was copied from a storage element.
#[derive(Serialize, ToSchema)]
#[schema(as = Downloaded)]
pub(crate) struct DownloadView<'a> {
    /// The file.
    lfn: &'a str,
    /// Path on this machine.
    file: Cow<'a, str>,
    /// GUID of the file.
    guid: String,
    /// Bytes, if known.
    #[schema(required)]
    size: Option<u64>,
    /// Known checksums, `algorithm:hex`.
    checksums: Vec<String>,
    /// The source.
    se: &'a str,
    /// Duration in seconds.
    seconds: f64,
}

/// File that was copied to storage elements.
#[derive(Serialize, ToSchema)]
#[schema(as = Uploaded)]
pub(crate) struct UploadView<'a> {
    #[serde(flatten)]
    whereis: json::WhereisOut<'a>,
    /// Path on this machine.
    file: Cow<'a, str>,
    /// Duration in seconds.
    seconds: f64,
}

/// `exacat cp`
pub(crate) async fn cp(context: &mut Context, args: &CpArgs, global: &Global) -> Result<(), Failure> {
    let sides: Vec<Side> = args.from.iter().map(|text| Side::parse(text)).collect::<Result<_, _>>()?;
    let to = Side::parse(&args.to)?;
    let many = sides.len() > 1;
    let root = match &args.root {
        Some(root) => root.trim_end_matches('/').to_owned(),
        None => root_url(&global.connection)?,
    };
    let (certificate, site) = (certificate(&global.connection), site(args)?);
    // Last, so that no failure comes between making the token and revoking it.
    let (shown, own) = token_to_show(context, global, matches!(to, Side::Catalogue(..))).await?;
    let program = Program::new(args.xrdcp.clone(), root, shown, certificate.as_deref()).await;
    let mut copying = Copying { program, args, global, site };
    let mut ended = Ok(());
    for (side, text) in sides.iter().zip(&args.from) {
        let done = match (side, &to) {
            (Side::Local(from), Side::Catalogue(lfn, spec)) => {
                copying.write(context, from, lfn, spec, many).await
            }
            (Side::Catalogue(lfn, spec), Side::Local(path)) if spec.is_empty() => {
                copying.read(context, lfn, path, many).await
            }
            (Side::Catalogue(..), Side::Local(_)) => Err(Failure::local(format!(
                "{text}: choose storage elements only for a copy into the catalogue"
            ))),
            _ => Err(Failure::local("one side is a local file (file:PATH), the other an LFN")),
        };
        match done {
            Ok(()) => {}
            // For a single file the failure is that of the command.
            Err(Failure::Catalogue { subject, error, .. }) if many => {
                context.fail(subject.as_deref().unwrap_or(text), &error);
            }
            Err(failure) => {
                ended = Err(failure);
                break;
            }
        }
    }
    if let Some(id) = own
        && let Err(error) = context.call(Operation::TokenRevoke { id }).await
    {
        say(&format!("exacat: the token made for this command is good for a while still: {}", error.message));
    }
    ended
}

fn site(args: &CpArgs) -> Result<Option<AccountName>, Failure> {
    Ok(args.site.as_deref().map(AccountName::parse).transpose()?)
}

/// Returns the token for the XRootD service: the user's, or one made for this command.
async fn token_to_show(
    context: &Context,
    global: &Global,
    write: bool,
) -> Result<(String, Option<TokenId>), Failure> {
    if let (Some(token), None) = (token(&global.connection)?, &global.connection.act_as) {
        return Ok((token, None));
    }
    let issue = Operation::TokenIssue {
        user: None,
        scope: Lfn::root(),
        write,
        lifetime_seconds: TOKEN_SECONDS,
        note: "exacat cp".to_owned(),
    };
    match context.call(issue).await? {
        Answer::TokenIssued { token, secret } => Ok((secret, Some(token.id))),
        other => Err(Failure::unexpected(&other)),
    }
}

/// State that all copies share.
struct Copying<'a> {
    program: Program,
    args: &'a CpArgs,
    global: &'a Global,
    site: Option<AccountName>,
}

/// A local file that is written to storage elements.
struct Upload<'a> {
    from: &'a Path,
    lfn: &'a Lfn,
    guid: Guid,
    content: &'a Content,
    /// Storage elements to avoid.
    never: &'a [SeName],
}

impl Copying<'_> {
    // ---- to this machine ----

    /// Copies a file to this machine, from the first replica that can be read and is right.
    async fn read(&mut self, context: &mut Context, lfn: &Lfn, to: &Path, into: bool) -> Result<(), Failure> {
        let began = Instant::now();
        let about = |error: Error| Failure::about(lfn.as_str(), error);
        let stat = stat(context, lfn).await.map_err(about)?;
        let whereis = self.whereis(context, &stat.lfn).await.map_err(about)?;
        let path = match (to.is_dir(), lfn.file_name()) {
            (true, Some(name)) => to.join(name.as_str()),
            (true, None) => return Err(Failure::local(format!("{lfn} has no name"))),
            (false, _) if into => return Err(Failure::local(format!("{} is no directory", to.display()))),
            (false, _) => to.to_owned(),
        };
        if path.exists() && !self.args.force {
            return Err(Failure::local(format!("{}: there already: --force replaces it", path.display())));
        }
        let (opened, member) = opened(context, &stat).await?;
        let mut why: Option<Error> = None;
        for replica in &whereis.replicas {
            let Some(se) = replica.se.as_ref().filter(|_| is_read_by_root(&replica.pfn)) else { continue };
            if replica.state == ReplicaState::Lost {
                continue;
            }
            match self.read_from(se, &opened, member.as_deref(), &whereis, &path).await? {
                Ok(()) => {
                    if context.out.style.json {
                        let checksums: Vec<String> =
                            whereis.checksums.iter().map(ToString::to_string).collect();
                        return context.out.json(&DownloadView {
                            lfn: lfn.as_str(),
                            file: path.to_string_lossy(),
                            guid: whereis.guid.to_string(),
                            size: whereis.size,
                            checksums,
                            se: se.as_str(),
                            seconds: began.elapsed().as_secs_f64(),
                        });
                    }
                    return self.tell(context, &format!("{lfn} from {se}"), whereis.size, began);
                }
                Err(error) => {
                    let host = exacat_exchange::se_rules::endpoint(&replica.pfn).unwrap_or_default();
                    let message = format!("{} (from {se}, {host})", error.message);
                    if let Some(before) = why.replace(Error::new(error.kind, message)) {
                        say(&format!("exacat: {lfn}: {}: tried the next replica", before.message));
                    }
                }
            }
        }
        let none = || Error::new(ErrorKind::Unavailable, "no replica of it can be read by root://");
        Err(about(why.unwrap_or_else(none)))
    }

    /// Reads the file from one storage element, and gives it its name if it is right.
    async fn read_from(
        &mut self,
        se: &SeName,
        opened: &Lfn,
        member: Option<&str>,
        whereis: &Whereis,
        path: &Path,
    ) -> Result<Result<(), Error>, Failure> {
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unfinished = directory.join(format!(".{name}.{}.unfinished", std::process::id()));
        // Removed again in any case, unless it gets its name.
        let unfinished = tempfile::TempPath::try_from_path(unfinished)
            .map_err(|error| Failure::local(format!("{}: {error}", directory.display())))?;
        let url = self.program.url(opened, &[("exacat.se", se.as_str())]);
        let options: Vec<&str> = member.iter().flat_map(|member| ["--zip", member]).chain(["-f"]).collect();
        let mut bar = Bar::new(self.global, "bytes");
        let size = whereis.size.unwrap_or(0);
        let local = unfinished.to_path_buf();
        let copied = self
            .program
            .copy(&options, url.into(), unfinished.as_os_str().to_owned(), |_| {
                bar.show_bytes(std::fs::metadata(&local).map_or(0, |about| about.len()), size);
            })
            .await;
        bar.end();
        if let Err(error) = copied? {
            return Ok(Err(error));
        }
        let kinds: Vec<ChecksumAlgorithm> =
            whereis.checksums.iter().map(|checksum| checksum.algorithm()).collect();
        let content = read(unfinished.to_path_buf(), kinds).await?;
        let wrong = |what: String| Ok(Err(Error::new(ErrorKind::Corrupt, what)));
        if whereis.size.is_some_and(|size| size != content.size) {
            return wrong(format!("{} bytes came, it has {size}", content.size));
        }
        for checksum in &content.checksums {
            if whereis.checksums.get(checksum.algorithm()).is_some_and(|known| known != checksum) {
                return wrong(format!("the copy is wrong: its checksum is {checksum}"));
            }
        }
        let named = match self.args.force {
            true => unfinished.persist(path).map_err(|error| error.error),
            false => unfinished.persist_noclobber(path).map_err(|error| error.error),
        };
        named.map_err(|error| Failure::local(format!("{}: {error}", path.display())))?;
        Ok(Ok(()))
    }

    // ---- from this machine ----

    /// Copies a local file to storage elements.
    async fn write(
        &mut self,
        context: &mut Context,
        from: &Path,
        to: &Lfn,
        spec: &Spec,
        into: bool,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let (lfn, there) = self.target(context, from, to, into).await?;
        let about = |error: Error| Failure::about(lfn.as_str(), error);
        let content = read(from.to_owned(), MADE.to_vec()).await?;
        let guid = match &there {
            None => Guid::v7(crate::parse::now(), random()?),
            Some(stat) => same_file(stat, &content).map_err(about)?,
        };
        let upload = Upload { from, lfn: &lfn, guid, content: &content, never: &spec.never };
        let (mut written, mut why) = (0, None);
        for wish in &spec.wishes {
            match self.write_to(context, &upload, wish).await? {
                Ok(()) => written += 1,
                Err(error) => {
                    if let Wish::Se(se) = wish {
                        say(&format!("exacat: {lfn} to {se}: {}", error.message));
                    }
                    why = Some(error);
                }
            }
        }
        match why {
            Some(error) if written == 0 => return Err(about(error)),
            // The file exists, with fewer replicas than requested.
            Some(error) => context.fail(lfn.as_str(), &error),
            None => {}
        }
        let whereis = self.whereis(context, &lfn).await.map_err(about)?;
        if context.out.style.json {
            return context.out.json(&UploadView {
                whereis: json::whereis(&FileRef::Lfn(lfn.clone()), &whereis),
                file: from.to_string_lossy(),
                seconds: began.elapsed().as_secs_f64(),
            });
        }
        let ses: Vec<&str> =
            whereis.replicas.iter().filter_map(|at| at.se.as_ref()).map(SeName::as_str).collect();
        self.tell(context, &format!("{lfn} on {}", ses.join(", ")), Some(content.size), began)
    }

    /// Finds the LFN of the target, and its present entry.
    async fn target(
        &self,
        context: &Context,
        from: &Path,
        to: &Lfn,
        into: bool,
    ) -> Result<(Lfn, Option<Stat>), Failure> {
        let about = |error: Error| Failure::about(to.as_str(), error);
        let there = stat_if_there(context, to).await.map_err(about)?;
        let is_directory = there.as_ref().is_some_and(|stat| stat.entry.directory().is_some());
        if !is_directory && (into || to.must_be_directory()) {
            return Err(Failure::local(format!("{to} is no directory")));
        }
        if !is_directory {
            return Ok((to.clone(), there));
        }
        let name = from.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failure::local(format!("{}: no name for a file", from.display())))?;
        let lfn = Lfn::parse(&format!("{}/{name}", to.as_str().trim_end_matches('/')))?;
        let there = stat_if_there(context, &lfn).await.map_err(about)?;
        Ok((lfn, there))
    }

    /// Writes one replica, and waits until the catalogue has it.
    async fn write_to(
        &mut self,
        context: &mut Context,
        upload: &Upload<'_>,
        wish: &Wish,
    ) -> Result<Result<(), Error>, Failure> {
        let Upload { from, lfn, guid, content, never } = *upload;
        let checksums: Vec<String> = content.checksums.iter().map(ToString::to_string).collect();
        let guid_text = guid.to_string();
        let size = content.size.to_string();
        let mut fields = vec![("exacat.guid", guid_text.as_str()), ("oss.asize", size.as_str())];
        // Values are joined by commas.
        let mut joined = String::new();
        for checksum in &checksums {
            if !joined.is_empty() {
                joined.push(',');
            }
            joined.push_str(checksum);
        }
        match wish {
            Wish::Any => {}
            Wish::Se(se) => fields.push(("exacat.se", se.as_str())),
            Wish::Label(label) => fields.push(("exacat.qos", label.as_str())),
        }
        if let Some(site) = &self.site {
            fields.push(("exacat.site", site.as_str()));
        }
        let lists = [
            ("exacat.checksum", joined),
            ("exacat.not", never.iter().map(SeName::as_str).collect::<Vec<_>>().join(",")),
        ];
        let mut url = self.program.url(lfn, &fields);
        for (name, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
            url.push_str(&format!("&{name}={list}"));
        }
        let before = self.replicas(context, lfn).await;
        let mut bar = Bar::new(self.global, "bytes");
        let copied = self
            .program
            // Without -f xrdcp refuses a taken name without asking. The server decides on it.
            .copy(&["-f"], from.as_os_str().to_owned(), OsString::from(url), |child| {
                bar.show_bytes(read_by(child).min(content.size), content.size);
            })
            .await;
        bar.end();
        if let Err(error) = copied? {
            // Give the upload reservation up. It is no error if there is none.
            let _ = context.call(Operation::UploadAbort { guid, se: None }).await;
            return Ok(Err(error));
        }
        let until = Instant::now() + WHOLE_WITHIN;
        let mut pause = LOOK_EVERY;
        loop {
            self.program.nudge(lfn).await;
            let now = self.replicas(context, lfn).await;
            if now.len() > before.len() {
                return Ok(Ok(()));
            }
            if !self.is_reserved(context, guid).await? {
                let why =
                    "the storage element has other content than was to be written: the upload was given up";
                return Ok(Err(Error::new(ErrorKind::Corrupt, why)));
            }
            if Instant::now() >= until {
                return Ok(Err(unconfirmed(lfn, guid)));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_EVERY_MAX);
        }
    }

    async fn replicas(&self, context: &Context, lfn: &Lfn) -> Vec<SeName> {
        match self.whereis(context, lfn).await {
            Ok(whereis) => whereis.replicas.into_iter().filter_map(|at| at.se).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Says whether a replica of it is still pending.
    async fn is_reserved(&self, context: &Context, guid: Guid) -> Result<bool, Failure> {
        let limit = crate::context::PAGE_ITEMS;
        let mut pages =
            context.pages(Operation::UploadList { cursor: exacat_model::Cursor::default(), limit });
        while let Some(answer) = pages.next().await? {
            let Answer::Uploads { items, .. } = answer else { return Err(Failure::unexpected(&answer)) };
            if items.iter().any(|item| item.reservation.guid == guid) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    // ---- both ----

    async fn whereis(&self, context: &Context, lfn: &Lfn) -> exacat_model::Result<Whereis> {
        let ask = Operation::Whereis { files: vec![FileRef::Lfn(lfn.clone())], site: self.site.clone() };
        match context.call(ask).await? {
            Answer::Whereis(mut found) => found.pop().unwrap_or_else(|| Err(Error::not_found("no answer"))),
            _ => {
                Err(Error::new(ErrorKind::Internal, "internal error: the answer does not fit the operation"))
            }
        }
    }

    fn tell(
        &self,
        context: &mut Context,
        what: &str,
        size: Option<u64>,
        began: Instant,
    ) -> Result<(), Failure> {
        if !context.out.style.verbose {
            return Ok(());
        }
        let (size, seconds) = (size.unwrap_or(0), began.elapsed().as_secs_f64());
        let rate = if seconds > 0.0 { size as f64 / seconds } else { 0.0 };
        let (size, rate) = (human::size(u128::from(size)), human::size(rate as u128));
        let what = context.out.name(what).to_string();
        context.out.line(format!("{what}: {size} in {seconds:.1} s, {rate}/s"))
    }
}

fn is_read_by_root(pfn: &str) -> bool {
    ["root://", "roots://", "xroot://", "xroots://"].iter().any(|scheme| pfn.starts_with(scheme))
}

/// Bytes that a process has read: the file, and a little more.
fn read_by(child: &tokio::process::Child) -> u64 {
    let path = child.id().map(|id| PathBuf::from(format!("/proc/{id}/io")));
    let text = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Reads a file on a thread that may block.
async fn read(path: PathBuf, algorithms: Vec<ChecksumAlgorithm>) -> Result<Content, Failure> {
    let lost = |error| Failure::local(format!("reading was lost: {error}"));
    tokio::task::spawn_blocking(move || content::read(&path, &algorithms)).await.map_err(lost)?
}

fn random() -> Result<[u8; 10], Failure> {
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::local(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}

async fn stat(context: &Context, lfn: &Lfn) -> exacat_model::Result<Stat> {
    match context.call(Operation::Stat { lfns: vec![lfn.clone()], follow: true }).await? {
        Answer::Stats(mut stats) => stats.pop().unwrap_or_else(|| Err(Error::not_found("no answer"))),
        _ => Err(Error::new(ErrorKind::Internal, "internal error: the answer does not fit the operation")),
    }
}

async fn stat_if_there(context: &Context, lfn: &Lfn) -> exacat_model::Result<Option<Stat>> {
    match stat(context, lfn).await {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the error for a written file whose storage element does not confirm it.
fn unconfirmed(lfn: &Lfn, guid: Guid) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!(
            "the bytes are written, but the storage element has not confirmed within {} s that they are whole. The file \
             becomes visible when it does: look with 'exacat upload ls' and 'exacat whereis {lfn}'. To give the copy up: \
             'exacat upload abort {guid}'",
            WHOLE_WITHIN.as_secs()
        ),
    )
}

/// Returns the GUID of an existing file with the same content: it then gets further replicas.
fn same_file(stat: &Stat, content: &Content) -> exacat_model::Result<Guid> {
    let other = |what: &str| {
        let message = format!("it exists, {what}: remove it first, or take another name");
        Err(Error::new(ErrorKind::Exists, message))
    };
    let Some(file) = stat.entry.file() else { return other("and is no file") };
    if file.size != Some(content.size) {
        return other("with another size");
    }
    let known: &Checksums = &file.checksums;
    let same =
        content.checksums.iter().filter_map(|made| known.get(made.algorithm()).map(|known| known == made));
    match same.collect::<Vec<_>>().as_slice() {
        [] => other("and it is not known whether it is the same"),
        all if all.iter().all(|same| *same) => Ok(file.guid),
        _ => other("with another content"),
    }
}

/// Returns the file to open for reading: itself, or the archive that contains it and its name
/// there.
async fn opened(context: &Context, stat: &Stat) -> Result<(Lfn, Option<String>), Failure> {
    let inside = stat.entry.file().and_then(|file| {
        file.replicas.iter().find_map(|replica| match &replica.location {
            Location::Member { archive, member } => Some((*archive, member.as_str().to_owned())),
            _ => None,
        })
    });
    let Some((archive, member)) = inside else { return Ok((stat.lfn.clone(), None)) };
    match context.call(Operation::Lfns { guids: vec![archive] }).await? {
        Answer::Lfns(mut found) => match found.pop() {
            Some(lfn) => Ok((lfn.map_err(|error| Failure::about(stat.lfn.as_str(), error))?, Some(member))),
            None => Err(Failure::local("no answer about an archive")),
        },
        other => Err(Failure::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    /// Goal: an unconfirmed copy says what to type, and all of it is a command.
    #[test]
    fn error_of_an_unconfirmed_copy_names_commands_that_exist() {
        let lfn = Lfn::parse("/d/x").unwrap();
        let error = unconfirmed(&lfn, Guid([7; 16]));
        assert_eq!(error.kind, ErrorKind::Unknown);
        let commands: Vec<&str> = error.message.split('\'').skip(1).step_by(2).collect();
        assert_eq!(commands.len(), 3, "{error}");
        for command in commands {
            Cli::try_parse_from(command.split(' ')).unwrap_or_else(|why| panic!("{command}: {why}"));
        }
    }
}
