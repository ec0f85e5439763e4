//! Directories, collections and links: creates them and sets their given attributes.

use std::collections::HashMap;

use exacat_model::answer::Stat;
use exacat_model::codec::Encode;
use exacat_model::operation::{Attribute, Existing};
use exacat_model::{Answer, Body, Error as ModelError, ErrorKind, Kind, Lfn, Operation, Tag};
use futures::StreamExt;

use crate::batches::{Batch, RowAt};
use crate::catalogue::Catalogue;
use crate::error::Error;
use crate::item::{Other, OtherKind};
use crate::limits::CALLS_IN_FLIGHT_MAX;
use crate::reject::{Complaint, Reason};
use crate::sending::{Sender, Sent, each_done, refusal, stops, unexpected};

/// Difference between an entry and its row.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Gap {
    /// Differing values: name, given, found.
    pub(crate) contradictions: Vec<(&'static str, String, String)>,
    /// Tags that the entry lacks.
    pub(crate) missing_tags: Vec<Tag>,
}

impl Gap {
    fn is_none(&self) -> bool {
        self.contradictions.is_empty() && self.missing_tags.is_empty()
    }

    fn text(&self) -> String {
        let mut parts: Vec<String> = self
            .contradictions
            .iter()
            .map(|(what, given, found)| format!("{what} is {found}, not {given}"))
            .collect();
        parts.extend(self.missing_tags.iter().map(|tag| format!("no tag {}", tag.key)));
        parts.join("; ")
    }

    /// Records a given value that differs from the found one.
    pub(crate) fn expect<T: PartialEq + std::fmt::Display>(
        &mut self,
        what: &'static str,
        given: Option<&T>,
        found: Option<&T>,
    ) {
        if let Some(given) = given
            && Some(given) != found
        {
            let found = found.map_or_else(|| "none".to_owned(), T::to_string);
            self.contradictions.push((what, given.to_string(), found));
        }
    }

    /// Records given tags that are missing or different.
    pub(crate) fn expect_tags(&mut self, given: &[Tag], found: &[Tag]) {
        for tag in given {
            match found.iter().find(|found| found.key == tag.key) {
                None => self.missing_tags.push(tag.clone()),
                Some(found) if found.value == tag.value => {}
                Some(found) => self.contradictions.push((
                    "tag",
                    format!("{}={}", tag.key, tag.value),
                    format!("{}={}", found.key, found.value),
                )),
            }
        }
    }
}

impl OtherKind {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            OtherKind::Directory => Kind::Directory,
            OtherKind::Collection => Kind::Collection,
            OtherKind::Link(_) => Kind::Link,
        }
    }
}

/// Compares an entry with a row that is no file.
pub(crate) fn gap(given: &Other, found: &Stat) -> Gap {
    let mut gap = Gap::default();
    let kind = found.entry.kind();
    if kind != given.what.kind() {
        gap.contradictions.push(("kind", given.what.kind().name().to_owned(), kind.name().to_owned()));
        return gap;
    }
    if let (OtherKind::Link(given), Body::Link { target, .. }) = (&given.what, &found.entry.body) {
        gap.expect("target", Some(given), Some(target));
    }
    gap.expect("owner", given.owner.as_ref(), Some(&found.owner));
    gap.expect("group", given.group.as_ref(), Some(&found.group));
    gap.expect("mode", given.mode.as_ref(), Some(&found.entry.mode));
    gap.expect("mtime", given.modified.as_ref(), Some(&found.entry.modified));
    gap.expect("expires", given.expires.as_ref(), found.entry.expires.as_ref());
    gap.expect_tags(&given.tags, &found.entry.tags);
    gap
}

/// Returns all attributes that a row gives.
fn attributes(other: &Other) -> Vec<Attribute> {
    let mut found = Vec::new();
    found.extend(other.owner.clone().map(Attribute::Owner));
    found.extend(other.group.clone().map(Attribute::Group));
    found.extend(other.mode.map(Attribute::Mode));
    found.extend(other.modified.map(Attribute::Modified));
    found.extend(other.expires.map(|expires| Attribute::Expires(Some(expires))));
    found
}

/// Treatment of one row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Create,
    /// Exists with equal fields.
    Keep,
    /// Exists and lacks some fields.
    Complete,
    Rejected,
}

impl<C: Catalogue> Sender<C> {
    /// Makes the directories of a batch, before any later batch is sent. Otherwise a directory with
    /// attributes could be made without them, as the parent of a file.
    pub(crate) async fn make_directories(&self, batch: &mut Batch, again: bool) -> Result<Sent, Error> {
        let is_directory = |(_, other): &(RowAt, Other)| other.what == OtherKind::Directory;
        let (directories, others) = std::mem::take(&mut batch.others).into_iter().partition(is_directory);
        batch.others = others;
        let mut sent = Sent::default();
        self.make_others(batch, directories, again, &mut sent).await?;
        Ok(sent)
    }

    /// Makes missing entries, and completes or refuses existing ones, by the policy.
    pub(crate) async fn make_others(
        &self,
        batch: &Batch,
        rows: Vec<(RowAt, Other)>,
        again: bool,
        sent: &mut Sent,
    ) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let lfns: Vec<Lfn> = rows.iter().map(|(_, other)| other.lfn.clone()).collect();
        let stats = match self.ask(Operation::Stat { lfns, follow: false }).await? {
            Answer::Stats(stats) if stats.len() == rows.len() => stats,
            _ => return Err(unexpected("stat").into()),
        };
        let mut fates = Vec::with_capacity(rows.len());
        for ((row, other), stat) in rows.iter().zip(stats) {
            match self.fate(other, stat, again) {
                Ok(fate) => fates.push(fate),
                Err(error) if stops(&error) => return Err(error.into()),
                Err(error) => {
                    sent.rejects.push(batch.reject(row, refusal(&error)));
                    fates.push(Fate::Rejected);
                }
            }
        }
        self.create(batch, &rows, &mut fates, sent).await?;
        self.complete(batch, &rows, &mut fates, sent).await?;
        for (fate, (_, other)) in fates.into_iter().zip(&rows) {
            match fate {
                Fate::Create => sent.counts.created += 1,
                Fate::Keep => sent.counts.unchanged += 1,
                Fate::Complete => sent.counts.merged += 1,
                Fate::Rejected => continue,
            }
            if other.what == OtherKind::Collection {
                self.collections.lock().insert(crate::seen::hash(other.lfn.as_str()));
            }
        }
        Ok(())
    }

    fn fate(&self, other: &Other, stat: Result<Stat, ModelError>, again: bool) -> Result<Fate, ModelError> {
        let stat = match stat {
            Ok(stat) => stat,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(Fate::Create),
            Err(error) => return Err(error),
        };
        let gap = gap(other, &stat);
        let exists = |what: String| Err(ModelError::new(ErrorKind::Exists, what));
        if gap.contradictions.iter().any(|(what, ..)| matches!(*what, "kind" | "target")) {
            return exists(gap.text());
        }
        match self.existing {
            // An interrupted run made it, perhaps without all of its fields.
            _ if again && !gap.is_none() => Ok(Fate::Complete),
            Existing::Refuse if !again => exists("it is there already".to_owned()),
            _ if gap.is_none() => Ok(Fate::Keep),
            Existing::Merge if gap.contradictions.is_empty() => Ok(Fate::Complete),
            _ => exists(gap.text()),
        }
    }

    /// Makes missing entries.
    async fn create(
        &self,
        batch: &Batch,
        rows: &[(RowAt, Other)],
        fates: &mut [Fate],
        sent: &mut Sent,
    ) -> Result<(), Error> {
        let wanted = |index: &usize| fates[*index] == Fate::Create;
        let (directories, singles): (Vec<usize>, Vec<usize>) =
            (0..rows.len()).filter(wanted).partition(|index| rows[*index].1.what == OtherKind::Directory);
        let mut outcomes = Vec::new();
        if !directories.is_empty() {
            let lfns = directories.iter().map(|index| rows[*index].1.lfn.clone()).collect();
            let answer = self.ask(Operation::Mkdir { lfns, parents: true, mode: None }).await?;
            let done = each_done(answer, directories.len(), "mkdir")?;
            outcomes.extend(directories.into_iter().zip(done));
        }
        let calls = singles.into_iter().map(|index| async move {
            let other = &rows[index].1;
            let operation = match &other.what {
                OtherKind::Link(target) => Operation::Link { lfn: other.lfn.clone(), target: target.clone() },
                _ => Operation::CollectionCreate { lfn: other.lfn.clone(), tags: other.tags.clone() },
            };
            (index, self.ask_with_parent(operation, &other.lfn).await.map(|_| ()))
        });
        let mut calls = futures::stream::iter(calls).buffer_unordered(CALLS_IN_FLIGHT_MAX);
        while let Some(outcome) = calls.next().await {
            outcomes.push(outcome);
        }
        drop(calls);
        reject_refused(batch, rows, fates, outcomes, sent)
    }

    /// Sets attributes and tags, in one call for entries with the same ones.
    async fn complete(
        &self,
        batch: &Batch,
        rows: &[(RowAt, Other)],
        fates: &mut [Fate],
        sent: &mut Sent,
    ) -> Result<(), Error> {
        type Same<T> = HashMap<Vec<u8>, (Vec<T>, Vec<usize>)>;
        let mut by_attributes: Same<Attribute> = HashMap::new();
        let mut by_tags: Same<Tag> = HashMap::new();
        for (index, (_, other)) in rows.iter().enumerate() {
            if !matches!(fates[index], Fate::Create | Fate::Complete) {
                continue;
            }
            let attributes = attributes(other);
            if !attributes.is_empty() {
                let same = by_attributes.entry(attributes.to_bytes()).or_insert((attributes, Vec::new()));
                same.1.push(index);
            }
            // A collection was made with its tags.
            let tagged = fates[index] == Fate::Create && other.what == OtherKind::Collection;
            if !other.tags.is_empty() && !tagged {
                let same = by_tags.entry(other.tags.to_bytes()).or_insert((other.tags.clone(), Vec::new()));
                same.1.push(index);
            }
        }
        let lfns =
            |indices: &[usize]| indices.iter().map(|index| rows[*index].1.lfn.clone()).collect::<Vec<_>>();
        let mut asked: Vec<(Vec<usize>, Operation)> = Vec::new();
        // Tags come first: a mode may remove the right to set them.
        for (_, (set, indices)) in by_tags {
            let operation = Operation::TagSet { lfns: lfns(&indices), set, unset: Vec::new() };
            asked.push((indices, operation));
        }
        self.ask_for_each(batch, rows, fates, asked, sent).await?;
        let mut asked = Vec::new();
        for (_, (attributes, indices)) in by_attributes {
            let operation = Operation::SetAttributes { lfns: lfns(&indices), attributes };
            asked.push((indices, operation));
        }
        self.ask_for_each(batch, rows, fates, asked, sent).await
    }

    async fn ask_for_each(
        &self,
        batch: &Batch,
        rows: &[(RowAt, Other)],
        fates: &mut [Fate],
        asked: Vec<(Vec<usize>, Operation)>,
        sent: &mut Sent,
    ) -> Result<(), Error> {
        let calls = asked.into_iter().map(|(indices, operation)| async move {
            let name = operation.name();
            let answer = self.ask(operation).await;
            (indices, answer, name)
        });
        let mut calls = futures::stream::iter(calls).buffer_unordered(CALLS_IN_FLIGHT_MAX);
        let mut outcomes = Vec::new();
        while let Some((indices, answer, name)) = calls.next().await {
            match answer {
                Ok(answer) => {
                    let done = each_done(answer, indices.len(), name)?;
                    outcomes.extend(indices.into_iter().zip(done));
                }
                Err(error) => outcomes.extend(indices.into_iter().map(|index| (index, Err(error.clone())))),
            }
        }
        drop(calls);
        reject_refused(batch, rows, fates, outcomes, sent)
    }
}

fn reject_refused(
    batch: &Batch,
    rows: &[(RowAt, Other)],
    fates: &mut [Fate],
    outcomes: Vec<(usize, Result<(), ModelError>)>,
    sent: &mut Sent,
) -> Result<(), Error> {
    for (index, outcome) in outcomes {
        match outcome {
            Ok(()) => {}
            Err(error) if stops(&error) => return Err(error.into()),
            Err(error) => {
                if fates[index] == Fate::Rejected {
                    continue;
                }
                fates[index] = Fate::Rejected;
                let reason = Reason::of_refusal(error.kind);
                sent.rejects.push(batch.reject(&rows[index].0, Complaint::new(reason, error.message)));
            }
        }
    }
    Ok(())
}
