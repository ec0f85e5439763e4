//! `register`, `replica` and `touch`: files that exist on storage.

use exacat_model::operation::{Attribute, Existing, NewFile, NewReplica, ReplicaEdit};
use exacat_model::{
    AccountName, Answer, Checksums, Error, ErrorKind, Guid, Lfn, Mode, Operation, ReplicaState, SeName, Tag,
    TagKey, TagValue,
};
use exacat_wire::json;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::args::{ExistingArg, RegisterArgs, ReplicaCommand, TouchArgs};
use crate::context::{Context, file_text};
use crate::failure::Failure;
use crate::parse::{self, Direction};

/// File to register, as a line of JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileIn {
    lfn: String,
    guid: Option<String>,
    size: Option<u64>,
    checksum: Option<String>,
    #[serde(default)]
    checksums: Vec<String>,
    owner: Option<String>,
    group: Option<String>,
    mode: Option<String>,
    modified: Option<String>,
    expires: Option<String>,
    job: Option<u64>,
    #[serde(default)]
    tags: Map<String, Value>,
    #[serde(default)]
    replicas: Vec<ReplicaIn>,
    member_of: Option<String>,
}

/// Replica, as a line of JSON has it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ReplicaIn {
    /// `SE` or `SE=PFN`.
    Short(String),
    /// All fields.
    Long {
        /// Storage element.
        se: String,
        /// URL.
        pfn: Option<String>,
        /// State.
        state: Option<String>,
    },
}

fn tag_value(value: &Value) -> exacat_model::Result<TagValue> {
    match value {
        Value::String(text) => Ok(TagValue::Text(text.clone())),
        Value::Bool(truth) => Ok(TagValue::Boolean(*truth)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Ok(TagValue::Integer(whole)),
            (None, Some(real)) if number.is_f64() => Ok(TagValue::Real(real)),
            // As a real number it would have another value.
            _ => Err(Error::invalid(format!(
                "a tag's value is beyond {}, the largest whole number there can be: {number}; give it as text",
                i64::MAX
            ))),
        },
        _ => Err(Error::invalid("a tag's value is text, a number, true or false")),
    }
}

impl FileIn {
    /// Makes the file; takes missing fields from `defaults`.
    fn file(self, defaults: &NewFile, state: ReplicaState) -> exacat_model::Result<NewFile> {
        let mut file = NewFile { lfn: parse::lfn(&self.lfn)?, ..defaults.clone() };
        if let Some(guid) = &self.guid {
            file.guid = Some(Guid::parse(guid)?);
        }
        file.size = self.size.or(file.size);
        let checksums: Vec<&String> = self.checksum.iter().chain(&self.checksums).collect();
        if !checksums.is_empty() {
            file.checksums = all_checksums(checksums)?;
        }
        let account = |text: Option<String>, default: Option<AccountName>| match text {
            Some(text) => AccountName::parse(&text).map(Some),
            None => Ok(default),
        };
        file.owner = account(self.owner, file.owner)?;
        file.group = account(self.group, file.group)?;
        if let Some(mode) = &self.mode {
            file.mode = Some(Mode::parse(mode)?);
        }
        if let Some(time) = &self.modified {
            file.modified = Some(parse::time(time, Direction::Past)?);
        }
        if let Some(time) = &self.expires {
            file.expires = Some(parse::time_to_come(time)?);
        }
        file.job = self.job.or(file.job);
        for (key, value) in &self.tags {
            let key = TagKey::parse(key)?;
            file.tags.retain(|tag| tag.key != key);
            file.tags.push(Tag { key, value: tag_value(value)? });
        }
        if !self.replicas.is_empty() {
            file.replicas =
                self.replicas.iter().map(|replica| replica.replica(state)).collect::<Result<_, _>>()?;
        }
        if let Some(member) = &self.member_of {
            file.member_of = Some(parse::member(member)?);
        }
        Ok(file)
    }
}

impl ReplicaIn {
    fn replica(&self, default: ReplicaState) -> exacat_model::Result<NewReplica> {
        match self {
            ReplicaIn::Short(text) => new_replica(text, default),
            ReplicaIn::Long { se, pfn, state } => Ok(NewReplica {
                se: SeName::parse(se)?,
                pfn: pfn.as_deref().map(exacat_model::Pfn::parse).transpose()?,
                state: state.as_deref().map_or(Ok(default), ReplicaState::parse)?,
            }),
        }
    }
}

fn new_replica(text: &str, state: ReplicaState) -> exacat_model::Result<NewReplica> {
    let (se, pfn) = parse::replica(text)?;
    Ok(NewReplica { se, pfn, state })
}

/// Collects checksums, of which no two may contradict.
pub(crate) fn all_checksums<S: AsRef<str>>(
    texts: impl IntoIterator<Item = S>,
) -> exacat_model::Result<Checksums> {
    let mut checksums = Checksums::none();
    for text in texts {
        checksums.add(exacat_model::Checksum::parse(text.as_ref())?)?;
    }
    Ok(checksums)
}

/// `exacat register`
pub(crate) async fn register(context: &mut Context, args: RegisterArgs) -> Result<(), Failure> {
    let state = ReplicaState::parse(&args.state)?;
    let from_stdin = args.lfns.iter().any(|name| name == "-");
    if args.guid.is_some() && (from_stdin || args.lfns.len() > 1) {
        return Err(Failure::local("--guid is for one file: no two have the same"));
    }
    let defaults = defaults(&args, state)?;
    let existing = match args.existing {
        ExistingArg::Refuse => Existing::Refuse,
        ExistingArg::Same => Existing::Same,
        ExistingArg::Merge => Existing::Merge,
    };
    for argument in &args.lfns {
        let mut names = context.names(std::slice::from_ref(argument));
        let mut line = 0u64;
        while let Some(batch) = names.next_batch().await? {
            let mut files = Vec::with_capacity(batch.len());
            for text in batch {
                line += 1;
                let (subject, file) = if argument == "-" {
                    match serde_json::from_str::<FileIn>(&text) {
                        Ok(given) => (given.lfn.clone(), given.file(&defaults, state)),
                        Err(error) => (
                            format!("standard input, file {line}"),
                            Err(Error::invalid(format!("not a file as JSON: {error}"))),
                        ),
                    }
                } else {
                    let file = parse::lfn(&text).map(|lfn| NewFile { lfn, ..defaults.clone() });
                    (text, file)
                };
                match file {
                    Ok(file) => files.push(file),
                    Err(error) => context.fail(&subject, &error),
                }
            }
            send(context, files, args.parents, existing).await?;
        }
    }
    Ok(())
}

/// Makes the defaults of all files from the options.
fn defaults(args: &RegisterArgs, state: ReplicaState) -> exacat_model::Result<NewFile> {
    let mut file = NewFile::named(Lfn::root());
    file.guid = args.guid.as_deref().map(Guid::parse).transpose()?;
    file.size = args.size.as_deref().map(parse::bytes).transpose()?;
    file.checksums = all_checksums(&args.checksum)?;
    file.owner = args.owner.as_deref().map(AccountName::parse).transpose()?;
    file.group = args.group.as_deref().map(AccountName::parse).transpose()?;
    file.mode = args.mode.as_deref().map(Mode::parse).transpose()?;
    file.modified = args.modified.as_deref().map(|text| parse::time(text, Direction::Past)).transpose()?;
    file.expires = args.expires.as_deref().map(parse::time_to_come).transpose()?;
    file.job = args.job;
    file.tags = args.tags.iter().map(|text| parse::tag(text)).collect::<Result<_, _>>()?;
    file.replicas = args.se.iter().map(|text| new_replica(text, state)).collect::<Result<_, _>>()?;
    file.member_of = args.member_of.as_deref().map(parse::member).transpose()?;
    Ok(file)
}

async fn send(
    context: &mut Context,
    files: Vec<NewFile>,
    parents: bool,
    existing: Existing,
) -> Result<(), Failure> {
    if files.is_empty() {
        return Ok(());
    }
    let lfns: Vec<Lfn> = files.iter().map(|file| file.lfn.clone()).collect();
    let answer = context.call(Operation::Register { files, parents, existing }).await?;
    let Answer::Registered(answers) = answer else { return Err(Failure::unexpected(&answer)) };
    context.each(&lfns, answers, Lfn::to_string, |context, lfn, registered| {
        let (what, guid) = json::registered(registered);
        if context.out.style.json {
            let guid = json::Shown(guid);
            return context.out.json(&json::RegisteredOut { lfn: lfn.as_str(), result: what, guid });
        }
        if context.out.style.quiet {
            return Ok(());
        }
        let line = format!("{guid}  {}", context.out.name(lfn.as_str()));
        let line = if context.out.style.verbose { format!("{what}  {line}") } else { line };
        context.out.line(line)
    })?;
    // Flush each batch: its reader may rely on what it prints.
    context.out.flush()
}

/// `exacat replica`
pub(crate) async fn replica(context: &mut Context, command: ReplicaCommand) -> Result<(), Failure> {
    let (file, edits) = match &command {
        ReplicaCommand::Add { file, replicas, state } => {
            let state = ReplicaState::parse(state)?;
            let replicas = replicas.iter().map(|text| new_replica(text, state).map(ReplicaEdit::Put));
            (file, replicas.collect::<Result<Vec<_>, _>>()?)
        }
        ReplicaCommand::Rm { file, ses, delete } => {
            let drops =
                ses.iter().map(|se| Ok(ReplicaEdit::Drop { se: SeName::parse(se)?, delete: *delete }));
            (file, drops.collect::<exacat_model::Result<Vec<_>>>()?)
        }
        ReplicaCommand::State { file, ses, state } => {
            let state = ReplicaState::parse(state)?;
            let states = ses.iter().map(|se| Ok(ReplicaEdit::State(SeName::parse(se)?, state)));
            (file, states.collect::<exacat_model::Result<Vec<_>>>()?)
        }
    };
    if file == "-" {
        let mut names = context.names(std::slice::from_ref(file));
        while let Some(batch) = names.next_batch().await? {
            let files = context.files(batch);
            if files.is_empty() {
                continue;
            }
            let each = files.iter().map(|file| (file.clone(), edits.clone())).collect();
            let answer = context.call(Operation::SetReplicas { edits: each }).await?;
            context.done(&files, answer, file_text)?;
        }
        return Ok(());
    }
    let file = parse::file(file).map_err(|error| Failure::about(file, error))?;
    let answer = context.call(Operation::SetReplicas { edits: vec![(file.clone(), edits)] }).await?;
    context.done(&[file], answer, file_text)
}

/// `exacat touch`
pub(crate) async fn touch(context: &mut Context, args: TouchArgs) -> Result<(), Failure> {
    let time = args.time.as_deref().map(|text| parse::time(text, Direction::Past)).transpose()?;
    let mut names = context.names(&args.lfns);
    while let Some(batch) = names.next_batch().await? {
        let lfns = context.lfns(batch);
        if lfns.is_empty() {
            continue;
        }
        let mut there = lfns.clone();
        if !args.no_create {
            let files: Vec<NewFile> = lfns
                .iter()
                .map(|lfn| NewFile { size: Some(0), modified: time, ..NewFile::named(lfn.clone()) })
                .collect();
            let register = Operation::Register { files, parents: args.parents, existing: Existing::Refuse };
            let answer = context.call(register).await?;
            let Answer::Registered(answers) = answer else { return Err(Failure::unexpected(&answer)) };
            there.clear();
            for (lfn, answer) in lfns.iter().zip(answers) {
                match answer {
                    Ok(_) => context.show_done(lfn.as_str())?,
                    Err(error) if error.kind == ErrorKind::Exists => there.push(lfn.clone()),
                    Err(error) => context.fail(lfn.as_str(), &error),
                }
            }
        }
        if there.is_empty() {
            continue;
        }
        let attributes = vec![Attribute::Modified(time.unwrap_or_else(parse::now))];
        let answer = context.call(Operation::SetAttributes { lfns: there.clone(), attributes }).await?;
        match answer {
            // -c ignores missing files.
            Answer::EachDone(answers) => {
                for (lfn, answer) in there.iter().zip(answers) {
                    match answer {
                        Ok(()) => context.show_done(lfn.as_str())?,
                        Err(error) if args.no_create && error.kind == ErrorKind::NotFound => {}
                        Err(error) => context.fail(lfn.as_str(), &error),
                    }
                }
            }
            Answer::Done { .. } => there.iter().try_for_each(|lfn| context.show_done(lfn.as_str()))?,
            other => return Err(Failure::unexpected(&other)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> exacat_model::Result<NewFile> {
        let mut defaults = NewFile::named(Lfn::root());
        defaults.size = Some(7);
        defaults.tags = vec![Tag::parse("run=1").unwrap(), Tag::parse("year=2026").unwrap()];
        let given: FileIn = serde_json::from_str(line).map_err(|error| Error::invalid(error.to_string()))?;
        given.file(&defaults, ReplicaState::Available)
    }

    #[test]
    fn a_line_of_json_overrides_the_options() {
        let file = read(
            r#"{"lfn":"/a b","checksum":"adler32:1","tags":{"run":2,"good":true},
            "replicas":["A::B::C","D=root://h//x",{"se":"E","state":"lost"}]}"#,
        )
        .unwrap();
        assert_eq!((file.lfn.as_str(), file.size), ("/a b", Some(7)));
        assert_eq!(file.replicas.len(), 3);
        assert_eq!(file.replicas[1].pfn.as_ref().unwrap().as_str(), "root://h//x");
        assert_eq!(file.replicas[2].state, ReplicaState::Lost);
        let tags: Vec<String> = file.tags.iter().map(crate::output::human::tag).collect();
        assert_eq!(tags, ["year=2026", "good=true", "run=2"]);
        assert_eq!(read(r#"{"lfn":"/a","size":0}"#).unwrap().size, Some(0));
        let file = read(r#"{"lfn":"/a","tags":{"most":9223372036854775807,"real":1e19}}"#).unwrap();
        assert_eq!(file.tags[2].value, TagValue::Integer(i64::MAX));
        assert_eq!(file.tags[3].value, TagValue::Real(1e19));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for bad in [
            r#"{"size":1}"#,
            r#"{"lfn":"a"}"#,
            r#"{"lfn":"/a","sizes":1}"#,
            r#"{"lfn":"/a","size":-1}"#,
            r#"{"lfn":"/a","tags":{"x":[1]}}"#,
            r#"{"lfn":"/a","tags":{"x":9223372036854775808}}"#,
            r#"{"lfn":"/a","checksums":["adler32:1","adler32:2"]}"#,
            r#"{"lfn":"/a","replicas":[{"se":"A","state":"gone"}]}"#,
            "/a",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
