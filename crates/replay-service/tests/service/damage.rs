//! Damaged, torn and foreign files of a service: refused with the file's name, or harmless.

use std::fs;
use std::path::{Path, PathBuf};

use exacat_replay_service::service::ReplayServer;

use crate::rig::{Rig, good, settings};

fn segment(directory: &Path) -> PathBuf {
    let log = directory.join("replay/runs/one/log");
    let mut files: Vec<_> = fs::read_dir(log).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_string_lossy().ends_with(".log"));
    files.sort();
    files.into_iter().next_back().expect("a segment of the journal")
}

async fn refused(directory: &Path) -> String {
    match ReplayServer::start(settings(directory, None)).await {
        Ok(_) => panic!("the service starts"),
        Err(error) => error.message,
    }
}

/// A service with a run, half of which has ended. It is stopped.
async fn half(files: &[u32]) -> Rig {
    let mut rig = Rig::new(files).await;
    rig.begin("one", 64).await;
    let items = rig.items("one", "a", 64).await.unwrap().items;
    let results = items.iter().take(files.len() / 2).map(good).collect();
    rig.results("one", "a", results).await.unwrap();
    rig.server.take().unwrap().stop().await;
    rig
}

#[tokio::test]
async fn damaged_journal_is_refused_by_its_name() {
    let rig = half(&[1, 2, 3, 4]).await;
    let path = segment(rig.directory.path());
    let mut bytes = fs::read(&path).unwrap();
    // Inside of the first record: others follow it, so it is no torn end.
    bytes[200] ^= 1;
    fs::write(&path, bytes).unwrap();
    let message = refused(rig.directory.path()).await;
    assert!(message.contains("runs/one/log"), "{message}");
}

#[tokio::test]
async fn trace_that_is_another_is_refused_and_the_operators_may_go() {
    let mut rig = half(&[1, 2, 3, 4]).await;
    // The service has a copy of its own.
    fs::remove_file(rig.directory.path().join("t.trace")).unwrap();
    let mut without = settings(rig.directory.path(), None);
    without.trace = None;
    let server = ReplayServer::start(without).await.unwrap();
    assert_eq!(server.runs(), 1);
    server.stop().await;
    let traces = rig.directory.path().join("replay/traces");
    let kept = fs::read_dir(traces).unwrap().next().unwrap().unwrap().path();
    fs::write(&kept, b"other").unwrap();
    let mut without = settings(rig.directory.path(), None);
    without.trace = None;
    let error = ReplayServer::start(without).await.err().unwrap();
    assert!(error.message.contains("not the one of its name"), "{error}");
    rig.server = None;
}

#[tokio::test]
async fn second_service_in_a_directory_is_refused() {
    let rig = Rig::new(&[1]).await;
    let message = refused(rig.directory.path()).await;
    assert!(message.contains("another replay service"), "{message}");
}

/// Property: a run whose creation was interrupted is gone, and its name is free.
#[tokio::test]
async fn run_whose_creation_was_interrupted_is_gone() {
    let mut rig = Rig::new(&[1, 2]).await;
    rig.begin("one", 2).await;
    rig.server.take().unwrap().stop().await;
    let runs = rig.directory.path().join("replay/runs");
    fs::rename(runs.join("one"), runs.join(".new-one")).unwrap();
    let server = ReplayServer::start(settings(rig.directory.path(), None)).await.unwrap();
    assert_eq!(server.runs(), 0);
    assert!(!runs.join(".new-one").exists());
    server.stop().await;
}
