//! Repeated attempts, with a pause between two of them.

use exacat_model::{Error, Result};

use crate::limits::ATTEMPT_PAUSE;

/// Waits before another attempt, where nothing bounds the number of attempts.
pub(crate) async fn pause() {
    tokio::time::sleep(ATTEMPT_PAUSE).await;
}

/// Attempts at one thing, of a limited number.
pub(crate) struct Attempts {
    failed: usize,
    most: usize,
}

impl Attempts {
    /// Allows `most` attempts.
    pub(crate) fn of(most: usize) -> Self {
        Attempts { failed: 0, most }
    }

    /// Number of attempts that failed so far.
    pub(crate) fn failed(&self) -> usize {
        self.failed
    }

    /// Notes a failure and waits before the next attempt. Returns the error if it was the last one.
    pub(crate) async fn after(&mut self, error: Error) -> Result<()> {
        self.failed += 1;
        if self.failed >= self.most {
            return Err(error);
        }
        tracing::debug!(%error, attempt = self.failed, "an attempt failed, another one follows");
        pause().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use exacat_model::ErrorKind;

    use super::*;

    /// Goal: the number of attempts is bounded to the edge.
    #[tokio::test]
    async fn last_attempt_returns_its_error() {
        let error = || Error::new(ErrorKind::Unavailable, "lost");
        assert_eq!(Attempts::of(1).after(error()).await, Err(error()));
        let mut attempts = Attempts::of(2);
        assert_eq!((attempts.after(error()).await, attempts.failed()), (Ok(()), 1));
        assert_eq!((attempts.after(error()).await, attempts.failed()), (Err(error()), 2));
    }
}
