//! Counts of the results of an import's rows.

/// Results of accepted rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Entries created.
    pub created: u64,
    /// Entries that existed with equal fields.
    pub unchanged: u64,
    /// Entries that existed, to which missing fields were added.
    pub merged: u64,
    /// Files that became members of a collection.
    pub members_added: u64,
    /// Files that were members already.
    pub members_unchanged: u64,
    /// Collections made because a row names them.
    pub collections_made: u64,
    /// SEs registered because a row names them.
    pub ses_registered: u64,
    /// Users and groups made for an export's rows.
    pub accounts_made: u64,
}

impl Counts {
    /// Adds `other`.
    pub fn add(&mut self, other: &Counts) {
        self.created += other.created;
        self.unchanged += other.unchanged;
        self.merged += other.merged;
        self.members_added += other.members_added;
        self.members_unchanged += other.members_unchanged;
        self.collections_made += other.collections_made;
        self.ses_registered += other.ses_registered;
        self.accounts_made += other.accounts_made;
    }

    /// Says whether nothing changed in the catalogue.
    pub fn changed_nothing(&self) -> bool {
        let Counts {
            created, merged, members_added, collections_made, ses_registered, accounts_made, ..
        } = self;
        created + merged + members_added + collections_made + ses_registered + accounts_made == 0
    }
}
