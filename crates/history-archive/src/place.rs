//! Objects of a directory or of a bucket, as the archive needs them: whole writes, reads of a range.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exacat_model::{Error, ErrorKind, Result};
use futures::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, RetryConfig};

/// Longest wait for one object, retries included. Bounds how long a close of the history waits.
const OBJECT_TIME: Duration = Duration::from_secs(120);
/// Longest wait for one request.
const REQUEST_TIME: Duration = Duration::from_secs(60);
/// Times that a request is repeated.
const RETRIES: usize = 3;

/// Start of the address of a bucket.
const S3: &str = "s3://";

/// An object and its length and age.
pub(crate) struct Object {
    /// Path below the place.
    pub path: String,
    /// Milliseconds since 1970 at which it was written, by the clock of the place.
    pub written_ms: i64,
}

/// A directory or a part of a bucket.
pub struct Place {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    /// For errors.
    name: String,
    /// Runs the requests, so that callers may be any thread. None once it is dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

impl Place {
    /// Opens `s3://BUCKET/PREFIX` or a directory, which is made if it is missing. The credentials of a bucket
    /// are those of the environment: `AWS_ACCESS_KEY_ID` and so on.
    pub fn open(text: &str) -> Result<Self> {
        let cannot = |error: &dyn std::fmt::Display| {
            Error::invalid(format!("the archive of the history {text}: {error}"))
        };
        if let Some(rest) = text.strip_prefix(S3) {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let retry = RetryConfig {
                max_retries: RETRIES,
                retry_timeout: OBJECT_TIME / 2,
                ..RetryConfig::default()
            };
            let is_plain = |name: &str| std::env::var(name).is_ok_and(|value| value.starts_with("http://"));
            // A plain address is the operator's own wish.
            let allows_plain = is_plain("AWS_ENDPOINT") || is_plain("AWS_ENDPOINT_URL");
            let options = ClientOptions::new().with_timeout(REQUEST_TIME).with_allow_http(allows_plain);
            let store = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_retry(retry)
                .with_client_options(options)
                .build()
                .map_err(|error| cannot(&error))?;
            return Self::of(Arc::new(store), prefix, text);
        }
        let directory = std::path::Path::new(text);
        exacat_disk::Disk::create_directory(&exacat_disk::RealDisk, directory)
            .map_err(|error| cannot(&error))?;
        let store = LocalFileSystem::new_with_prefix(directory).map_err(|error| cannot(&error))?;
        Self::of(Arc::new(store.with_fsync(true)), "", text)
    }

    /// Takes objects of a store below a prefix.
    pub fn of(store: Arc<dyn ObjectStore>, prefix: &str, name: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("exacat-archive")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("no thread for the archive: {error}"))
            })?;
        let prefix = prefix.trim_matches('/').to_owned();
        Ok(Place { store, prefix, name: name.trim_end_matches('/').to_owned(), runtime: Some(runtime) })
    }

    /// Returns the place as the operator gave it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of an object for errors.
    pub(crate) fn name_of(&self, path: &str) -> String {
        format!("{}/{path}", self.name)
    }

    fn path(&self, path: &str) -> Result<Path> {
        let separator = if self.prefix.is_empty() { "" } else { "/" };
        let whole = format!("{}{separator}{path}", self.prefix);
        Path::parse(whole).map_err(|error| Error::new(ErrorKind::Invalid, format!("archive: {error}")))
    }

    /// Waits for a request. The caller may be a thread that runs async tasks: it blocks as for a disk.
    fn wait<T: Send + 'static>(
        &self,
        path: &str,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<object_store::Result<T>> {
        let unavailable = |what: &str| {
            Error::new(
                ErrorKind::Unavailable,
                format!("{}: {what}; it is tried again later", self.name_of(path)),
            )
        };
        let Some(runtime) = &self.runtime else { return Err(unavailable("the archive is closed")) };
        let (give, take) = std::sync::mpsc::sync_channel(1);
        runtime.spawn(async move {
            let _nobody_waits = give.send(tokio::time::timeout(OBJECT_TIME, request).await);
        });
        match take.recv() {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(unavailable(&format!("no answer for {} s", OBJECT_TIME.as_secs()))),
            Err(_) => Err(unavailable("the request ended without an answer")),
        }
    }

    fn failed(&self, path: &str, error: &object_store::Error) -> Error {
        let kind = match error {
            object_store::Error::NotFound { .. } => ErrorKind::NotFound,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("{}: {error}", self.name_of(path)))
    }

    /// Reads a part of an object.
    pub(crate) fn read(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let (store, at) = (Arc::clone(&self.store), self.path(path)?);
        let read = self.wait(path, async move { store.get_range(&at, range).await })?;
        read.map_err(|error| self.failed(path, &error))
    }

    /// Reads a whole object.
    pub(crate) fn read_all(&self, path: &str) -> Result<Bytes> {
        let (store, at) = (Arc::clone(&self.store), self.path(path)?);
        let read = self.wait(path, async move {
            let options = GetOptions { range: None::<GetRange>, ..GetOptions::default() };
            store.get_opts(&at, options).await?.bytes().await
        })?;
        read.map_err(|error| self.failed(path, &error))
    }

    /// Returns the length of an object; none if it is missing.
    pub(crate) fn length(&self, path: &str) -> Result<Option<u64>> {
        let (store, at) = (Arc::clone(&self.store), self.path(path)?);
        match self.wait(path, async move { store.head(&at).await })? {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    /// Writes a new object, whole and durable; false if there is one of this path.
    pub(crate) fn put_new(&self, path: &str, bytes: Bytes) -> Result<bool> {
        let (store, at) = (Arc::clone(&self.store), self.path(path)?);
        let put =
            self.wait(path, async move { store.put_opts(&at, bytes.into(), PutMode::Create.into()).await })?;
        match put {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(false)
            }
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    /// Writes an object, whole and durable, in place of one of this path.
    pub(crate) fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        let (store, at) = (Arc::clone(&self.store), self.path(path)?);
        let put = self.wait(path, async move { store.put(&at, bytes.into()).await })?;
        put.map(|_| ()).map_err(|error| self.failed(path, &error))
    }

    /// Deletes an object; a missing one is fine.
    pub(crate) fn delete(&self, path: &str) -> Result<()> {
        let (store, at) = (Arc::clone(&self.store), self.path(path)?);
        match self.wait(path, async move { store.delete(&at).await })? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    /// Lists the objects below a folder; all for the empty folder.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<Object>> {
        let (store, at) = (Arc::clone(&self.store), self.path(folder)?);
        let listed = self.wait(folder, async move {
            let listed: Vec<_> = store.list(Some(&at)).collect().await;
            listed.into_iter().collect::<object_store::Result<Vec<_>>>()
        })?;
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("{}/", self.prefix) };
        let object = |meta: object_store::ObjectMeta| {
            let path = meta.location.as_ref().strip_prefix(&prefix)?.to_owned();
            Some(Object { path, written_ms: meta.last_modified.timestamp_millis() })
        };
        let listed = listed.map_err(|error| self.failed(folder, &error))?;
        Ok(listed.into_iter().filter_map(object).collect())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waits for nothing: the last user may be an async task.
            runtime.shutdown_background();
        }
    }
}
