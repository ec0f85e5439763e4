//! Context of a command: connection, standard output, and the status of failed items.

use std::sync::Arc;

use exacat_model::operation::FileRef;
use exacat_model::{Answer, Error, ErrorKind, Lfn, Operation, Result, SeName, SeNumber};

use crate::advice::Advised;
use crate::args::AtArgs;
use crate::connect::{Pages, Session};
use crate::failure::{Failure, STATUS_REJECTED, report, status_of};
use crate::input::Names;
use crate::output::Out;
use crate::parse;
use exacat_wire::json::{DoneOut, SeNames};

/// Items of one page of a listing: the first come soon, and memory stays bounded.
pub(crate) const PAGE_ITEMS: u32 = 1000;

/// Context of a command.
pub(crate) struct Context {
    /// Connection to the server.
    pub session: Session,
    /// Standard output.
    pub out: Out,
    /// Status of the last item that failed.
    failed: Option<u8>,
    ses: Arc<SeNames>,
    ses_asked: bool,
    /// The command, for advice after an error.
    advised: Advised,
}

impl Context {
    /// Makes the context of one command.
    pub(crate) fn new(session: Session, out: Out, advised: Advised) -> Self {
        Context { session, out, failed: None, ses: Arc::default(), ses_asked: false, advised }
    }

    /// Exit status of a command that came to its end.
    pub(crate) fn status(&self) -> u8 {
        self.failed.unwrap_or(0)
    }

    /// Reports a failed item, and continues.
    pub(crate) fn fail(&mut self, subject: &str, error: &Error) {
        // Earlier output must precede the error.
        let _ = self.out.flush();
        let advice = self.advised.next(Some(subject), error);
        report(Some(subject), error, advice.as_deref());
        self.failed = Some(status_of(error.kind));
    }

    /// Reports rejected rows of a listing, and continues.
    pub(crate) fn rejected(&mut self, listing: &str, error: &Error) {
        self.fail(listing, error);
        self.failed = Some(STATUS_REJECTED);
    }

    /// Sends an operation.
    pub(crate) async fn call(&self, operation: Operation) -> Result<Answer> {
        self.session.call(operation).await
    }

    /// Makes the reads of the command be about a past state, if one is given.
    pub(crate) async fn at(&mut self, past: &AtArgs) -> std::result::Result<(), Failure> {
        let Some(text) = &past.at else { return Ok(()) };
        let subject = || format!("--at {text}");
        let point = parse::past(text).map_err(|error| Failure::about(subject(), error))?;
        let is_quiet = self.out.style.quiet || self.out.style.json;
        self.session.enter_past(point, is_quiet).await.map_err(|error| Failure::about(subject(), error))
    }

    /// Sends an operation about `subject`, which an error then names.
    pub(crate) async fn call_about(
        &self,
        subject: &str,
        operation: Operation,
    ) -> std::result::Result<Answer, Failure> {
        self.call(operation).await.map_err(|error| Failure::about(subject, error))
    }

    /// Sends a change whose only answer is success; JSON output states it.
    pub(crate) async fn change(
        &mut self,
        subject: &str,
        operation: Operation,
    ) -> std::result::Result<(), Failure> {
        self.call_about(subject, operation).await?;
        self.show_done(subject)
    }

    /// Prints in JSON that something was done. Without JSON no message means success.
    pub(crate) fn show_done(&mut self, subject: &str) -> std::result::Result<(), Failure> {
        match self.out.style.json {
            true => self.out.json(&DoneOut { item: subject, done: true }),
            false => Ok(()),
        }
    }

    /// Streams all pages of an answer.
    pub(crate) fn pages(&self, operation: Operation) -> Pages {
        self.session.pages(operation)
    }

    /// Returns storage elements by number. If the caller may not list them, names that came with
    /// pages must do.
    pub(crate) async fn ses(&mut self) -> std::result::Result<Arc<SeNames>, Failure> {
        if !self.ses_asked {
            self.ses_asked = true;
            match self.call(Operation::SeList).await {
                Ok(Answer::Ses(list)) => Arc::make_mut(&mut self.ses).learn_all(&list),
                Ok(other) => return Err(Failure::unexpected(&other)),
                Err(error) if error.kind == ErrorKind::Denied || error.kind == ErrorKind::Unauthenticated => {
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.ses.clone())
    }

    /// Returns the known storage elements, and asks for them again if one of these is not known: it may
    /// have been added meanwhile.
    pub(crate) async fn ses_with(
        &mut self,
        wanted: impl IntoIterator<Item = SeNumber>,
    ) -> std::result::Result<Arc<SeNames>, Failure> {
        let mut known = self.ses().await?;
        if wanted.into_iter().any(|number| number != SeNumber::NONE && !known.knows(number)) {
            self.ses_asked = false;
            known = self.ses().await?;
        }
        Ok(known)
    }

    /// Adds names that came with a page.
    pub(crate) fn learn(&mut self, names: &[(u16, SeName)]) {
        if !names.iter().all(|(number, _)| self.ses.knows(SeNumber(*number))) {
            Arc::make_mut(&mut self.ses).learn(names);
        }
    }

    /// Returns the names to work on.
    pub(crate) fn names(&self, arguments: &[String]) -> Names {
        Names::new(arguments, self.out.style.null)
    }

    /// Returns the `names` that are LFNs, with their texts; reports the others.
    pub(crate) fn lfns(&mut self, names: Vec<String>) -> Vec<Lfn> {
        self.parsed(names, parse::lfn)
    }

    /// Returns the `names` that are LFNs or GUIDs; reports the others.
    pub(crate) fn files(&mut self, names: Vec<String>) -> Vec<FileRef> {
        self.parsed(names, parse::file)
    }

    /// Returns the `names` that can be parsed; reports the others.
    pub(crate) fn parsed<T>(&mut self, names: Vec<String>, parse: impl Fn(&str) -> Result<T>) -> Vec<T> {
        let mut parsed = Vec::with_capacity(names.len());
        for name in names {
            match parse(&name) {
                Ok(value) => parsed.push(value),
                Err(error) => self.fail(&name, &error),
            }
        }
        parsed
    }

    /// Pairs answers with their requests, reports failures, and passes the rest to `show`.
    pub(crate) fn each<S, T>(
        &mut self,
        asked: &[S],
        answers: Vec<Result<T>>,
        subject: impl Fn(&S) -> String,
        mut show: impl FnMut(&mut Self, &S, T) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), Failure> {
        if asked.len() != answers.len() {
            let error = Error::new(
                ErrorKind::Internal,
                format!("{} answers to {} questions", answers.len(), asked.len()),
            );
            return Err(error.into());
        }
        for (asked, answer) in asked.iter().zip(answers) {
            match answer {
                Ok(value) => show(self, asked, value)?,
                Err(error) => self.fail(&subject(asked), &error),
            }
        }
        Ok(())
    }

    /// Reports failures of a change to several entries, and in JSON the successes.
    pub(crate) fn done<S>(
        &mut self,
        asked: &[S],
        answer: Answer,
        subject: impl Fn(&S) -> String,
    ) -> std::result::Result<(), Failure> {
        match answer {
            Answer::EachDone(answers) => {
                self.each(asked, answers, &subject, |context, asked, ()| context.show_done(&subject(asked)))
            }
            Answer::Done { .. } => asked.iter().try_for_each(|asked| self.show_done(&subject(asked))),
            other => Err(Failure::unexpected(&other)),
        }
    }

    /// Reports failures of a change to several entries, and counts the successes.
    pub(crate) fn count_done<S>(
        &mut self,
        asked: &[S],
        answer: Answer,
        subject: impl Fn(&S) -> String,
    ) -> std::result::Result<u64, Failure> {
        match answer {
            Answer::EachDone(answers) => {
                let mut done = 0;
                self.each(asked, answers, subject, |_, _, ()| {
                    done += 1;
                    Ok(())
                })?;
                Ok(done)
            }
            Answer::Done { .. } => Ok(asked.len() as u64),
            other => Err(Failure::unexpected(&other)),
        }
    }
}

/// Text of a file reference, as the user gave it.
pub(crate) fn file_text(file: &FileRef) -> String {
    match file {
        FileRef::Lfn(lfn) => lfn.to_string(),
        FileRef::Guid(guid) => guid.to_string(),
    }
}
