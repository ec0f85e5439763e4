//! Context of a repair: the damaged catalogue.

use std::sync::Arc;

use exacat_disk::Disk;
use exacat_log::segment::CatalogueId;

use crate::identity::{Identity, Layout};
use crate::settings::EmbeddedSettings;

/// Context of a repair.
pub(crate) struct RepairContext<'g> {
    pub disk: &'g Arc<dyn Disk>,
    pub settings: &'g EmbeddedSettings,
    pub data: &'g Layout,
    pub identity: Identity,
}

impl RepairContext<'_> {
    pub(crate) fn catalogue(&self) -> CatalogueId {
        self.identity.id
    }
}
