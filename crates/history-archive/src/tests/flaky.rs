//! A store in memory that fails: at one request, before or after its effect, or from one request on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Request that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Before it had an effect.
    Before,
    /// Its effect is there, and the answer is lost.
    After,
}

/// The store.
#[derive(Debug)]
pub(super) struct Flaky {
    inner: Arc<dyn ObjectStore>,
    requests: AtomicU64,
    fails_at: AtomicU64,
    after: AtomicBool,
    /// All later requests fail, too.
    for_ever: AtomicBool,
}

impl Flaky {
    pub(super) fn new(inner: Arc<dyn ObjectStore>) -> Self {
        let (requests, fails_at) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Flaky { inner, requests, fails_at, after: AtomicBool::new(false), for_ever: AtomicBool::new(false) }
    }

    /// Lets a request fail, counted from now.
    pub(super) fn fail(&self, in_requests: u64, failure: Failure, for_ever: bool) {
        self.after.store(failure == Failure::After, Ordering::Relaxed);
        self.for_ever.store(for_ever, Ordering::Relaxed);
        self.fails_at.store(self.requests.load(Ordering::Relaxed) + in_requests, Ordering::Relaxed);
    }

    pub(super) fn heal(&self) {
        self.fails_at.store(u64::MAX, Ordering::Relaxed);
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts a request, and says whether it fails.
    fn fails(&self) -> Option<Failure> {
        let (number, at) =
            (self.requests.fetch_add(1, Ordering::Relaxed), self.fails_at.load(Ordering::Relaxed));
        match number == at {
            true if self.after.load(Ordering::Relaxed) => Some(Failure::After),
            true => Some(Failure::Before),
            false => (number > at && self.for_ever.load(Ordering::Relaxed)).then_some(Failure::Before),
        }
    }
}

fn lost() -> Error {
    Error::Generic { store: "flaky", source: "the connection is lost".into() }
}

impl fmt::Display for Flaky {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("flaky")
    }
}

#[async_trait]
impl ObjectStore for Flaky {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match self.fails() {
            Some(Failure::Before) => Err(lost()),
            Some(Failure::After) => self.inner.put_opts(at, payload, options).await.and(Err(lost())),
            None => self.inner.put_opts(at, payload, options).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        if self.fails().is_some() { Err(lost()) } else { self.inner.get_opts(at, options).await }
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fails() {
            Some(_) => Box::pin(futures::stream::once(async { Err(lost()) })),
            None => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
