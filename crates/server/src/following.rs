//! Status and metrics of following: of a follower, and of a source.

use exacat_follower::{Compared, FollowState, FollowerSeen};
use exacat_model::answer::StatusPart;
use exacat_store::{Sample, Store};
use exacat_wire::native::Behind;

use crate::metric_table as table;
use crate::service::Service;

fn own_samples(state: &FollowState, store: &dyn Store) -> Vec<Sample> {
    let (lag, (is_copying, copies)) = (state.lag(store.seen_revision()), state.copying());
    let mut samples = vec![
        table::BEHIND.is(lag.revisions),
        table::BEHIND_TIME.is(lag.ms),
        table::FOLLOWS.is(u64::from(state.trouble().is_none())),
        table::COPIES.is(copies),
        table::COPYING.is(u64::from(is_copying)),
    ];
    // The copy of a whole catalogue is compared by the digests of its log.
    if store.under().is_some() {
        let Compared { wholes, rows, differences } = state.comparisons();
        samples.extend([
            table::COMPARISONS.is(wholes),
            table::COMPARED_ROWS.is(rows),
            table::DIFFERENCES.is(differences),
        ]);
    }
    samples
}

fn source_samples(followers: &[FollowerSeen], copies: usize) -> Vec<Sample> {
    let away = followers.iter().filter(|follower| follower.is_away()).count();
    vec![
        table::FOLLOWERS.of("following", (followers.len() - away) as u64),
        table::FOLLOWERS.of("away", away as u64),
        table::COPIES_HELD.is(copies as u64),
    ]
}

impl Service {
    /// Returns the distance to the source; none on a server that follows no other.
    pub(crate) fn behind(&self) -> Option<Behind> {
        let state = self.follow.get()?;
        let revision = self.catalogue.store().seen_revision();
        let lag = state.lag(revision);
        Some(Behind { revision, changes: lag.revisions, ms: lag.ms })
    }

    /// Returns the parts of the status about following; none for a server alone.
    pub(crate) fn following_parts(&self) -> Vec<StatusPart> {
        let shown = |samples: Vec<Sample>| samples.iter().flat_map(Sample::shown).collect();
        let own = self.catalogue.store().seen_revision();
        let mut parts = Vec::new();
        if let Some(state) = self.follow.get() {
            let mut notes = vec![format!("follows {}", state.source())];
            notes.extend(self.catalogue.store().under().map(|under| format!("has only {under}")));
            notes.extend(state.trouble().map(|why| format!("cannot follow: {why}")));
            if state.copying().0 {
                notes.push("copies its source again".to_owned());
            }
            parts.push(StatusPart {
                part: "follower".to_owned(),
                metrics: shown(own_samples(state, &**self.catalogue.store())),
                notes,
            });
        }
        let followers = self.followers.list();
        let copies = self.followers.copies();
        if !followers.is_empty() || copies > 0 {
            let note = |follower: &FollowerSeen| {
                let behind = own.0.saturating_sub(follower.durable.0);
                let (name, host, unseen) = (follower.name(), &follower.host, follower.unseen.as_secs());
                let durable = follower.durable.0;
                format!(
                    "follower {name} at {host} has revision {durable}, {behind} behind, seen {unseen} s ago"
                )
            };
            let notes = followers.iter().map(note).collect();
            let metrics = shown(source_samples(&followers, copies));
            parts.push(StatusPart { part: "followers".to_owned(), metrics, notes });
        }
        parts
    }

    /// Returns the metrics of following for Prometheus.
    pub(crate) fn following_samples(&self) -> Vec<Sample> {
        let store = self.catalogue.store();
        let own = store.seen_revision();
        let mut samples = self.follow.get().map(|state| own_samples(state, &**store)).unwrap_or_default();
        let followers = self.followers.list();
        samples.extend(source_samples(&followers, self.followers.copies()));
        for follower in &followers {
            let behind = own.0.saturating_sub(follower.durable.0);
            let unseen = u64::try_from(follower.unseen.as_millis()).unwrap_or(u64::MAX);
            samples.push(table::FOLLOWER_BEHIND.of(follower.name(), behind));
            samples.push(table::FOLLOWER_UNSEEN.of(follower.name(), unseen));
        }
        samples
    }
}
