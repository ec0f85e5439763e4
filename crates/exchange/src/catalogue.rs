//! The catalogue interface that this crate needs, so that a test can replace the network.

use std::future::Future;

use exacat_model::{Answer, Cursor, Error, Operation};
use futures::Stream;

/// A catalogue that carries out operations.
///
/// Calls may run concurrently, and retry by themselves where that is safe. They return `Unknown`
/// and `Unavailable` only after they gave up.
pub trait Catalogue: Send + Sync + 'static {
    /// Carries out an operation.
    fn call(&self, operation: Operation) -> impl Future<Output = Result<Answer, Error>> + Send;

    /// Streams all pages of an operation that has pages, in order.
    fn stream(&self, operation: Operation) -> impl Stream<Item = Result<Answer, Error>> + Send {
        futures::stream::unfold(Some(operation), move |next| async move {
            let operation = next?;
            let again = again(&operation);
            let answer = self.call(operation).await;
            let following = following(again, &answer);
            Some((answer, following))
        })
    }
}

/// Returns the operation, if it has pages.
pub(crate) fn again(operation: &Operation) -> Option<Operation> {
    operation.resumed(Cursor::default()).is_some().then(|| operation.clone())
}

/// Returns the operation for the page after this one.
pub(crate) fn following(again: Option<Operation>, answer: &Result<Answer, Error>) -> Option<Operation> {
    answer.as_ref().ok()?.next().cloned().and_then(|next| again?.resumed(next))
}

impl Catalogue for exacat_client::Client {
    async fn call(&self, operation: Operation) -> Result<Answer, Error> {
        exacat_client::Client::call(self, operation).await
    }

    fn stream(&self, operation: Operation) -> impl Stream<Item = Result<Answer, Error>> + Send {
        exacat_client::Client::stream(self, operation)
    }
}
