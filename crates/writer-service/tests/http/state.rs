//! State, lists and commands of a service.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use exacat_model::ErrorKind;
use exacat_wire::writer::FileId;

use crate::rig::{Fake, OPERATOR, OWNER, Producer, Rig, STRANGER, bytes, eventually, link, raw, request};

/// Property: status, table and metrics say what the service has done, and need no token on this machine.
#[tokio::test]
async fn status_and_metrics_count_what_was_written() {
    let rig = Rig::start().await;
    let chunks = [bytes(1, 1000), bytes(2, 70_000)];
    rig.certified(FileId([1; 16]), "/run/1", &chunks).await;
    let status = rig.remote("").status().await.unwrap();
    assert_eq!((status.received_bytes, status.chunks, status.events), (71_000, 2, 2));
    assert_eq!((status.files.certified, status.files.open), (1, 0));
    assert_eq!((status.state.as_str(), status.service), ("up", rig.server.service().to_string()));
    assert_eq!((status.commits.done, status.bookings.done), (1, 1));
    assert!(exacat_model::TimeMs::parse(&status.time).is_ok(), "{}", status.time);
    let table = rig.remote("").table().await.unwrap();
    assert_eq!((table.services.len(), table.services[0].address.as_str()), (1, status.address.as_str()));
    let metrics = raw(rig.http(), &request("GET", "/metrics", "")).await;
    for line in [
        "exacat_writer_received_bytes_total 71000\n",
        "exacat_writer_files{stage=\"certified\"} 1\n",
        "exacat_writer_commits_total{outcome=\"done\"} 1\n",
        "exacat_writer_services{state=\"up\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let count = |name: &str| -> u64 {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(count("exacat_writer_acknowledgement_seconds_count") >= 1);
    assert!(count("exacat_writer_sync_seconds_count") >= 2);
    for path in ["/livez", "/readyz"] {
        assert!(raw(rig.http(), &request("GET", path, "")).await.starts_with("HTTP/1.1 200"), "{path}");
    }
}

/// Property: a file system that refuses O_DIRECT takes files all the same, and status and metrics say so for
/// its volume.
#[tokio::test]
async fn volume_without_direct_io_is_told() {
    let disk = crate::stage_out::disk_without_direct_io();
    let rig = Rig::on(disk, Arc::default(), |_| {}).await;
    for at in 1..=3 {
        rig.certified(FileId([at; 16]), &format!("/run/{at}"), &[bytes(at, 100)]).await;
    }
    let status = rig.remote("").status().await.unwrap();
    assert_eq!((status.volumes[0].buffered_parts, status.files.certified), (3, 3));
    let metrics = raw(rig.http(), &request("GET", "/metrics", "")).await;
    let path = &status.volumes[0].path;
    let line = format!("exacat_writer_volume_buffered_parts_total{{volume=\"{path}\"}} 3\n");
    assert!(metrics.contains(&line), "{metrics}");
}

/// Property: a list in pages has each file once, in order, and a stage selects.
#[tokio::test]
async fn files_are_listed_in_pages() {
    let rig = Rig::start().await;
    for at in 1..=5 {
        rig.certified(FileId([at; 16]), &format!("/run/{at}"), &[bytes(at, 100)]).await;
    }
    let mut producer = Producer::connect(rig.server.address()).await;
    producer.open(FileId([9; 16]), 1, 0, "/run/9").await;
    producer.chunks(FileId([9; 16]), 1, 0, 0, &[bytes(9, 33)]).await;
    let remote = rig.remote(OPERATOR);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = remote.files(Some("certified"), after, Some(2)).await.unwrap();
        assert!(page.files.len() <= 2);
        seen.extend(page.files.into_iter().map(|file| file.file));
        let Some(next) = page.next else { break };
        after = Some(exacat_writer_service::shapes::file_id_of(&next).unwrap());
    }
    let expected: Vec<String> = (1..=5).map(|at| FileId([at; 16]).to_string()).collect();
    assert_eq!(seen, expected);
    let open = remote.files(Some("open"), None, None).await.unwrap();
    assert_eq!((open.files.len(), open.files[0].bytes), (1, 33));
    assert_eq!(remote.files(Some("shut"), None, None).await.unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(remote.files(None, None, Some(0)).await.unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(remote.files(None, None, Some(1001)).await.unwrap_err().kind, ErrorKind::Invalid);
}

/// Property: only operators list files and command; a drained service says so, and takes files again.
#[tokio::test]
async fn only_operators_drain_and_resume() {
    let rig = Rig::start().await;
    for (token, kind) in [
        ("", ErrorKind::Unauthenticated),
        ("unknown", ErrorKind::Unauthenticated),
        (OWNER, ErrorKind::Denied),
        (STRANGER, ErrorKind::Denied),
    ] {
        let remote = rig.remote(token);
        assert_eq!(remote.drain().await.unwrap_err().kind, kind, "{token}");
        assert_eq!(remote.resume().await.unwrap_err().kind, kind, "{token}");
        assert_eq!(remote.files(None, None, None).await.unwrap_err().kind, kind, "{token}");
        assert_eq!(remote.remove(FileId([1; 16])).await.unwrap_err().kind, kind, "{token}");
    }
    let remote = rig.remote(OPERATOR);
    assert_eq!(rig.remote("").status().await.unwrap().state, "up", "a refused drain changes nothing");
    assert_eq!(remote.drain().await.unwrap().state, "draining");
    assert!(raw(rig.http(), &request("GET", "/readyz", "")).await.starts_with("HTTP/1.1 503"));
    assert_eq!(remote.resume().await.unwrap().state, "up");
}

/// Property: the catalogue is asked once in a while for a caller, not for each request.
#[tokio::test]
async fn rights_are_kept_for_seconds() {
    let rig = Rig::start().await;
    let before = rig.catalogue.judged.load(Ordering::Relaxed);
    for _ in 0..20 {
        rig.remote(OPERATOR).files(None, None, None).await.unwrap();
    }
    assert!(rig.catalogue.judged.load(Ordering::Relaxed) - before <= 2);
}

/// Property: a file that the catalogue does not take yet is listed with the reason, and certified later.
#[tokio::test]
async fn file_that_waits_for_the_catalogue_has_its_reason() {
    let catalogue = Arc::new(Fake::default());
    catalogue.is_down.store(true, Ordering::Relaxed);
    let rig = Rig::with(Arc::clone(&catalogue), |_| {}).await;
    let file = FileId([4; 16]);
    let writing = async {
        rig.certified(file, "/run/4", &[bytes(4, 10)]).await;
    };
    let watching = async {
        let remote = rig.remote(OPERATOR);
        eventually("the reason is listed", async || {
            let page = remote.files(Some("closed"), None, None).await.unwrap();
            page.files.first().is_some_and(|file| {
                assert_eq!((file.lfn.as_deref(), file.owner.as_str()), (Some("/run/4"), "daq"));
                file.reason == "the catalogue is down"
            })
        })
        .await;
        let status = rig.remote("").status().await.unwrap();
        assert!(status.commits.failed >= 1 && status.commits.last_failure == "the catalogue is down");
        catalogue.is_down.store(false, Ordering::Relaxed);
    };
    tokio::join!(writing, watching);
    assert_eq!(catalogue.files.lock().len(), 1);
}

/// Property: an operator's order removes the bytes of a certified file, and of no other one.
#[tokio::test]
async fn order_removes_a_certified_file() {
    let rig = Rig::start().await;
    let (file, open) = (FileId([1; 16]), FileId([2; 16]));
    rig.certified(file, "/run/1", &[bytes(1, 1000)]).await;
    let mut producer = Producer::connect(rig.server.address()).await;
    producer.open(open, 1, 0, "/run/2").await;
    producer.chunks(open, 1, 0, 0, &[bytes(2, 10)]).await;
    let remote = rig.remote(OPERATOR);
    assert_eq!(remote.remove(open).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(remote.staged(open).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(remote.remove(FileId([9; 16])).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(remote.staged(file).await.unwrap().stage, "staged");
    assert_eq!(remote.file(file).await.unwrap().bytes, 1000);
    eventually("the file is removed", async || remote.remove(file).await.is_ok()).await;
    let parts = rig.directory.path().join("volume/parts");
    let of_file = |name: std::ffi::OsString| name.to_string_lossy().starts_with(&file.to_string());
    eventually("its bytes are gone", async || {
        !std::fs::read_dir(&parts).unwrap().any(|entry| of_file(entry.unwrap().file_name()))
    })
    .await;
    assert_eq!(remote.file(open).await.unwrap().bytes, 10);
}

/// Property: a service without links counts the services that want one, and its status has the reason and
/// the remedy.
#[tokio::test]
async fn refused_links_are_counted_with_their_reason() {
    let rig = Rig::start().await;
    assert_eq!(rig.remote("").status().await.unwrap().refused_links.count, 0);
    let seeds = [rig.server.address()];
    let _other = Rig::with(Arc::default(), |settings| link(settings, &seeds)).await;
    let remote = rig.remote("");
    eventually("a link is refused", async || remote.status().await.unwrap().refused_links.count > 0).await;
    let refused = remote.status().await.unwrap().refused_links;
    assert!(refused.last_reason.contains("start it with --seeds or --group"), "{refused:?}");
    assert_eq!(refused.last_address, "127.0.0.1");
    let metrics = raw(rig.http(), &request("GET", "/metrics", "")).await;
    assert!(!metrics.contains("exacat_writer_refused_links_total 0\n"), "{metrics}");
    assert!(metrics.contains("exacat_writer_refused_links_total "), "{metrics}");
}
