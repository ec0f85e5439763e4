//! Finds the service that has the bytes of a certified file, for readers who ask another one.
//!
//! The services of the table are asked, with the credential of the reader. None of them asks further, so a
//! search is one hop. The caller has judged the reader before: a search tells that a file exists.

use std::pin::pin;
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, Result};
use exacat_wire::writer::{FileId, ServiceState};
use futures::{StreamExt, stream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::catalogue::Credential;
use crate::content::Content;
use crate::limits::{CONTENT_SEARCHES_MAX, REMOTE_TIME_MAX, SEARCH_ASKS_MAX};

/// Searches among the other services.
pub(crate) struct Elsewhere {
    content: Arc<Content>,
    searches: Semaphore,
}

impl Elsewhere {
    pub(crate) fn new(content: Arc<Content>) -> Self {
        Elsewhere { content, searches: Semaphore::new(CONTENT_SEARCHES_MAX) }
    }

    /// Returns the URLs of the live services. One with TLS sends the token of a reader over TLS only.
    fn urls(&self) -> Vec<String> {
        let hub = self.content.hub();
        let (own, table) = (hub.service(), hub.with(|service, _| service.table()).0);
        let has_tls = table.iter().any(|record| record.service == own && record.http.starts_with("https://"));
        let live = table.into_iter().filter(|of| of.service != own && of.state != ServiceState::Gone);
        let urls = live.map(|of| of.http.trim_end_matches('/').to_owned());
        urls.filter(|url| !url.is_empty() && (!has_tls || url.starts_with("https://"))).collect()
    }

    /// Returns the URL of a service of the table that answers for a file; none if there is none.
    ///
    /// # Errors
    /// Fails if some service did not say whether it has the file, and no other one has it.
    pub(crate) async fn find(&self, file: FileId, credential: &Credential) -> Result<Option<String>> {
        let urls = self.urls();
        if urls.is_empty() {
            return Ok(None);
        }
        let busy =
            |_| Error::new(ErrorKind::Busy, "too many searches for files on other services: come again");
        let _place = self.searches.try_acquire().map_err(busy)?;
        let ask = |url: String| async move {
            let has = match self.content.remote(url.clone(), credential) {
                Ok(remote) => remote.has_content(file).await,
                Err(error) => Err(error),
            };
            (url, has)
        };
        let mut silent: Option<String> = None;
        let search = async {
            let mut answers = pin!(stream::iter(urls.into_iter().map(ask)).buffer_unordered(SEARCH_ASKS_MAX));
            while let Some((url, has)) = answers.next().await {
                match has {
                    Ok(true) => return Some(url),
                    Ok(false) => {}
                    Err(error) => silent = Some(format!("{url}: {error}")),
                }
            }
            None
        };
        let found = match timeout(REMOTE_TIME_MAX, search).await {
            Ok(found) => found,
            Err(_) => {
                silent.get_or_insert_with(|| "no answer in time".to_owned());
                None
            }
        };
        match (found, silent) {
            (Some(url), _) => Ok(Some(url)),
            (None, None) => Ok(None),
            (None, Some(reason)) => {
                let what = "the file is not here, and another writer service does not say whether it has it";
                Err(Error::new(ErrorKind::Unavailable, format!("{what}: come again ({reason})")))
            }
        }
    }
}
