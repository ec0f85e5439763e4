//! Rights on files: only the owner of the process may read the engine's files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use exacat_model::DirId;
use exacat_store::{Snapshots, Store};

use super::backups::back_up_to;
use super::snapshots::{name, new_id};
use super::{TestClock, apply, mkdir, settings};
use crate::{EmbeddedSettings, EmbeddedStore};

/// Sets the modes of a directory and everything in it.
fn open_up(path: &Path) {
    let is_directory = path.is_dir();
    let mode = if is_directory { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    if is_directory {
        std::fs::read_dir(path).unwrap().for_each(|item| open_up(&item.unwrap().path()));
    }
}

/// Returns the files and directories on which group or others have rights.
fn open_to_others(path: &Path, found: &mut Vec<String>) -> usize {
    let mode = path.metadata().unwrap().permissions().mode() & 0o777;
    if mode != if path.is_dir() { 0o700 } else { 0o600 } {
        found.push(format!("{} {mode:o}", path.display()));
    }
    let inside = path.is_dir().then(|| std::fs::read_dir(path).unwrap());
    1 + inside.into_iter().flatten().map(|item| open_to_others(&item.unwrap().path(), found)).sum::<usize>()
}

/// Goal: everything that the engine makes is for the owner only, also in an existing directory with
/// mode 755. Opening closes the files of an older release to others. Method: a real disk; a store
/// with runs, a snapshot and a backup.
#[tokio::test]
async fn every_file_and_directory_is_for_the_owner_only() {
    let place = tempfile::tempdir().unwrap();
    let (data, backups) = (place.path().join("data"), place.path().join("backups"));
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    for round in 0..2u64 {
        let settings = EmbeddedSettings { directory: data.clone(), ..settings() };
        let store = EmbeddedStore::open(settings, Arc::new(TestClock::default())).unwrap();
        for number in 0..30 {
            let number = round * 100 + number;
            apply(&store, 1 + number, vec![mkdir(DirId::ROOT, &format!("d{number}"))]).await;
        }
        store.flush().await.unwrap();
        store.snapshot(new_id(), &name(&format!("s{round}"))).await.unwrap();
        back_up_to(&store, backups.to_str().unwrap()).await;
        store.close().await.unwrap();
        let mut found = Vec::new();
        let count = open_to_others(&data, &mut found);
        for part in ["runs", "log", "backups"] {
            open_to_others(&backups.join(part), &mut found);
        }
        assert!(count > 10 && found.is_empty(), "of {count}: {found:?}");
        open_up(&data);
        open_up(&backups);
    }
}
