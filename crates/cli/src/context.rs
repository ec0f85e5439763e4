//! What a command works with: the connection, standard output, and the tally of what failed.

use std::sync::Arc;

use exacat_model::operation::FileRef;
use exacat_model::{Answer, Error, ErrorKind, Lfn, Operation, Result, SeName, SeNumber};

use crate::advice::Advised;
use crate::connect::{Pages, Session};
use crate::failure::{Failure, STATUS_REJECTED, report, status_of};
use crate::input::Names;
use crate::names_of_ses::SeNames;
use crate::output::Out;
use crate::{parse, wildcards};

/// Items of one page of anything listed: the first come soon, and memory stays bounded.
pub const PAGE_ITEMS: u32 = 1000;

/// What a command works with.
pub struct Context {
    /// The way to the server.
    pub session: Session,
    /// Standard output.
    pub out: Out,
    /// The status of the last item that failed.
    failed: Option<u8>,
    ses: Arc<SeNames>,
    ses_asked: bool,
    /// The command, for advice after an error.
    advised: Advised,
}

impl Context {
    /// For one command.
    pub fn new(session: Session, out: Out, advised: Advised) -> Self {
        Context { session, out, failed: None, ses: Arc::default(), ses_asked: false, advised }
    }

    /// The exit status, if the command came to its end.
    pub fn status(&self) -> u8 {
        self.failed.unwrap_or(0)
    }

    /// One of several items failed: says so, and goes on.
    pub fn fail(&mut self, subject: &str, error: &Error) {
        // What was printed before comes before.
        let _ = self.out.flush();
        let advice = self.advised.next(Some(subject), error);
        report(Some(subject), error, advice.as_deref());
        self.failed = Some(status_of(error.kind));
    }

    /// Rows of a listing were rejected: says so, and goes on.
    pub fn rejected(&mut self, listing: &str, error: &Error) {
        self.fail(listing, error);
        self.failed = Some(STATUS_REJECTED);
    }

    /// Asks.
    pub async fn call(&self, operation: Operation) -> Result<Answer> {
        self.session.call(operation).await
    }

    /// Asks about something, which an error then names.
    pub async fn call_about(
        &self,
        subject: &str,
        operation: Operation,
    ) -> std::result::Result<Answer, Failure> {
        self.call(operation).await.map_err(|error| Failure::about(subject, error))
    }

    /// Asks for a change that has no answer but that it was done, which JSON says.
    pub async fn change(&mut self, subject: &str, operation: Operation) -> std::result::Result<(), Failure> {
        self.call_about(subject, operation).await?;
        self.show_done(subject)
    }

    /// Says in JSON that something was done; a person sees that nothing failed.
    pub fn show_done(&mut self, subject: &str) -> std::result::Result<(), Failure> {
        match self.out.style.json {
            true => self.out.json(&serde_json::json!({"item": subject, "done": true})),
            false => Ok(()),
        }
    }

    /// Asks for all pages.
    pub fn pages(&self, operation: Operation) -> Pages {
        self.session.pages(operation)
    }

    /// Storage elements by number. If the list may not be seen, what came with pages must do.
    pub async fn ses(&mut self) -> std::result::Result<Arc<SeNames>, Failure> {
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

    /// Learns names that came with a page.
    pub fn learn(&mut self, names: &[(u16, SeName)]) {
        if !names.iter().all(|(number, _)| self.ses.knows(SeNumber(*number))) {
            Arc::make_mut(&mut self.ses).learn(names);
        }
    }

    /// The names to work on.
    pub fn names(&self, arguments: &[String]) -> Names {
        Names::new(arguments, self.out.style.null)
    }

    /// The names to work on, with wildcards in arguments expanded. Names from standard input are exact.
    pub async fn names_expanded(&mut self, arguments: &[String]) -> std::result::Result<Names, Failure> {
        let expanded = wildcards::expand(self, arguments).await?;
        Ok(self.names(&expanded))
    }

    /// Those of `names` that are LFNs, each with how it was written; the others fail.
    pub fn lfns(&mut self, names: Vec<String>) -> Vec<Lfn> {
        self.parsed(names, parse::lfn)
    }

    /// Those of `names` that are LFNs or GUIDs; the others fail.
    pub fn files(&mut self, names: Vec<String>) -> Vec<FileRef> {
        self.parsed(names, parse::file)
    }

    /// Those of `names` that can be read; the others fail.
    pub fn parsed<T>(&mut self, names: Vec<String>, parse: impl Fn(&str) -> Result<T>) -> Vec<T> {
        let mut parsed = Vec::with_capacity(names.len());
        for name in names {
            match parse(&name) {
                Ok(value) => parsed.push(value),
                Err(error) => self.fail(&name, &error),
            }
        }
        parsed
    }

    /// Pairs answers with what was asked, reports the failed ones, and gives the others to `show`.
    pub fn each<S, T>(
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
    pub fn done<S>(
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
    pub fn count_done<S>(
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

/// How a file was asked for.
pub fn file_text(file: &FileRef) -> String {
    match file {
        FileRef::Lfn(lfn) => lfn.to_string(),
        FileRef::Guid(guid) => guid.to_string(),
    }
}
