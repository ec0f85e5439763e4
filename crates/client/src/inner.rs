//! State that the clones of a client and its streams share.

use exacat_model::{OperationId, Result};
use exacat_wire::native::{HelloAck, Identity};

use crate::pool::Pool;
use crate::retry::{Backoff, Jitter, OperationIds};
use crate::settings::ClientSettings;

/// State of a client, which its clones and its streams share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub pool: Pool,
    pub jitter: Jitter,
    pub operation_ids: OperationIds,
    pub server: HelloAck,
    pub identity: Identity,
}

impl Inner {
    pub(crate) fn settings(&self) -> &ClientSettings {
        &self.pool.settings
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.settings().backoff_min, self.settings().backoff_max)
    }

    /// Makes a new operation id.
    pub(crate) fn new_operation_id(&self) -> Result<OperationId> {
        self.operation_ids.new_id()
    }
}
