//! Accounts by the subjects of certificates, as the catalogue lists them.

use std::collections::HashMap;
use std::time::Instant;

use exacat_model::{AccountName, Answer, Error, ErrorKind, Result};
use tokio::sync::Mutex;

use crate::limits::{CALLER_KEPT, SUBJECTS_AGAIN};

/// A list of the catalogue, or its failure.
#[derive(Debug)]
struct Listing {
    accounts: Result<HashMap<String, AccountName>>,
    /// Time of the question; that of the answer if it failed.
    at: Instant,
}

/// Accounts by subject, of the last list.
#[derive(Debug, Default)]
pub(crate) struct Subjects(Mutex<Option<Listing>>);

impl Subjects {
    /// Returns the account that has a subject, and the time at which the catalogue said so, at most
    /// [`CALLER_KEPT`] ago. `list` asks the catalogue for its accounts; it is used if that is due.
    pub(crate) async fn account_of(
        &self,
        subject: &str,
        list: impl Future<Output = Result<Answer>>,
    ) -> Result<(AccountName, Instant)> {
        // One question at a time: those who wait here take its answer.
        let mut last = self.0.lock().await;
        if let Some(Listing { accounts, at }) = &*last {
            match accounts {
                Ok(accounts) if at.elapsed() < CALLER_KEPT => {
                    if let Some(account) = accounts.get(subject) {
                        return Ok((account.clone(), *at));
                    }
                    // An account may have got it just now, so an unknown subject asks again soon.
                    if at.elapsed() < SUBJECTS_AGAIN {
                        return Err(unknown(subject));
                    }
                }
                Err(error) if at.elapsed() < SUBJECTS_AGAIN => return Err(error.clone()),
                _ => {}
            }
        }
        let begun = Instant::now();
        let accounts = list.await.and_then(by_subject);
        let found = match &accounts {
            Ok(accounts) => accounts.get(subject).cloned().ok_or_else(|| unknown(subject)),
            Err(error) => Err(error.clone()),
        };
        let at = if accounts.is_ok() { begun } else { Instant::now() };
        *last = Some(Listing { accounts, at });
        Ok((found?, begun))
    }
}

fn by_subject(answer: Answer) -> Result<HashMap<String, AccountName>> {
    let Answer::Accounts { users, .. } = answer else {
        return Err(Error::new(ErrorKind::Internal, "the answer does not fit a list of accounts"));
    };
    let mut accounts = HashMap::new();
    for user in users {
        for subject in user.subjects {
            // The first one counts, as for the catalogue itself.
            accounts.entry(subject).or_insert_with(|| user.name.clone());
        }
    }
    Ok(accounts)
}

fn unknown(subject: &str) -> Error {
    let what = format!(
        "no account of the catalogue has the subject {subject:?}: give it to one with \
         'exacat user set NAME --subject SUBJECT', which replaces the account's other subjects"
    );
    Error::new(ErrorKind::Unauthenticated, what)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use exacat_model::answer::UserInfo;

    use super::*;

    fn user(id: u32, name: &str, subjects: &[&str]) -> UserInfo {
        let name = AccountName::parse(name).unwrap();
        UserInfo {
            id,
            group: name.clone(),
            name,
            groups: Vec::new(),
            roles: Vec::new(),
            may_become: Vec::new(),
            subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
            home: None,
            disabled: false,
        }
    }

    /// Makes a list look older.
    async fn age(subjects: &Subjects, by: std::time::Duration) {
        let mut last = subjects.0.lock().await;
        let listing = last.as_mut().unwrap();
        listing.at = listing.at.checked_sub(by).unwrap();
    }

    /// Property: one list answers for all subjects until it is old. A subject that it does not have is asked
    /// for again, but not at once, and so is a list that failed.
    #[tokio::test]
    async fn list_of_accounts_is_asked_for_when_it_is_due() {
        let (subjects, asked) = (Subjects::default(), AtomicUsize::new(0));
        let answer = |users: Vec<UserInfo>| {
            let asked = &asked;
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                Ok(Answer::Accounts { users, groups: Vec::new() })
            }
        };
        let first =
            || vec![user(1, "one", &["/CN=1", "/CN=shared"]), user(2, "two", &["/CN=2", "/CN=shared"])];
        for (subject, account) in [("/CN=1", "one"), ("/CN=2", "two"), ("/CN=shared", "one")] {
            let (found, _) = subjects.account_of(subject, answer(first())).await.unwrap();
            assert_eq!(found.as_str(), account);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let error = subjects.account_of("/CN=3", answer(first())).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthenticated);
        assert!(error.message.contains("\"/CN=3\"") && error.message.contains("exacat user set"), "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "not at once");
        age(&subjects, SUBJECTS_AGAIN).await;
        let second = || vec![user(2, "two", &["/CN=1"]), user(3, "three", &["/CN=3"])];
        assert_eq!(subjects.account_of("/CN=3", answer(second())).await.unwrap().0.as_str(), "three");
        assert_eq!(subjects.account_of("/CN=1", answer(second())).await.unwrap().0.as_str(), "two");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        age(&subjects, CALLER_KEPT).await;
        let away = || async { Err(Error::new(ErrorKind::Unavailable, "away")) };
        let error = subjects.account_of("/CN=3", away()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "an old list proves nothing");
        let error = subjects.account_of("/CN=3", answer(second())).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "not at once");
        age(&subjects, SUBJECTS_AGAIN).await;
        assert!(subjects.account_of("/CN=3", answer(second())).await.is_ok());
    }
}
