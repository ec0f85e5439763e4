//! Files with parts on several services, read from each of them, and from services that have nothing of them.

use std::sync::Arc;

use exacat_disk::RealDisk;
use exacat_model::{ErrorKind, Lfn};
use exacat_wire::writer::FileId;
use exacat_writer::VolumeInspection;
use exacat_writer::sums::adler32;
use exacat_writer_service::{Readable, Remote, RemoteSettings, merge};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::rig::{
    LONG, OWNER, Rig, STRANGER, acquainted, bytes, eventually, link, raw, request, services, written_on_two,
};

const FILE: FileId = FileId([5; 16]);
const LFN: &str = "/run/5";
/// Chunks of the file before the second part, and bytes.
const BORDER: usize = 25;
const BORDER_BYTES: u64 = 25_000;

fn chunks() -> Vec<Vec<u8>> {
    (0..40).map(|at| bytes(at, 1000)).collect()
}

async fn read(remote: &Remote, what: &Readable, from: u64) -> exacat_model::Result<Vec<u8>> {
    let mut content = remote.content(what, from, false).await?;
    let mut all = Vec::new();
    while let Some(bytes) = content.next().await? {
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

fn path(file: FileId) -> String {
    format!("/api/v1/writer/content/{file}")
}

/// Returns the headers of the answer to a request for the file.
async fn headers(rig: &Rig, method: &str, path: &str, token: &str) -> String {
    let answer = raw(rig.http(), &request(method, path, token)).await;
    answer.split_once("\r\n\r\n").map(|(headers, _)| headers.to_owned()).unwrap_or(answer)
}

/// Property: a file with parts on two services is read whole and in ranges from the one that certified it,
/// from the other one, and from one that has nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_on_two_services_is_read_from_any_service() {
    let rigs: [Rig; 3] = services(|_, _| {}).await;
    let chunks = chunks();
    let expected = chunks.concat();
    written_on_two((&rigs[0], &rigs[1]), FILE, LFN, (&chunks, BORDER)).await;
    for (at, rig) in rigs.iter().enumerate() {
        let remote = rig.remote(OWNER);
        for what in [Readable::File(FILE), Readable::Name(Lfn::parse(LFN).unwrap())] {
            let content = remote.content(&what, 0, false).await.unwrap();
            assert_eq!((content.file, content.adler32), (FILE, Some(adler32(&expected))), "service {at}");
            for from in [0, 1, BORDER_BYTES - 1, BORDER_BYTES, BORDER_BYTES + 1, 39_999] {
                let found = read(&remote, &what, from).await.unwrap();
                assert!(found == expected[from as usize..], "service {at} from {from}");
            }
        }
        let to = rig.directory.path().join("merged");
        merge(&remote, &Readable::File(FILE), &to, Arc::new(RealDisk)).await.unwrap();
        assert!(std::fs::read(&to).unwrap() == expected, "service {at}");
    }
    // A few bytes on both sides of the border.
    let range = format!(
        "GET {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OWNER}\r\nRange: bytes=24990-25009\r\n\
         Connection: close\r\n\r\n",
        path(FILE)
    );
    let mut stream = tokio::net::TcpStream::connect(rigs[1].http()).await.unwrap();
    stream.write_all(range.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 206") && answer.ends_with(&expected[24_990..25_010]));
    let location = format!("location: http://{}{}?redirected=true", rigs[1].http(), path(FILE));
    for rig in [&rigs[0], &rigs[2]] {
        for method in ["GET", "HEAD"] {
            let answer = headers(rig, method, &path(FILE), OWNER).await;
            assert!(answer.starts_with("HTTP/1.1 307") && answer.contains(&location), "{answer}");
        }
    }
    let answer = headers(&rigs[2], "GET", &format!("/api/v1/writer/content?lfn={LFN}"), OWNER).await;
    assert!(answer.starts_with("HTTP/1.1 307") && answer.contains(&location), "{answer}");
}

/// Property: a redirect is for those who may read the file. Nobody else learns that it exists, or where. A
/// redirected request is never redirected again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_is_one_hop_for_readers_only() {
    let rigs: [Rig; 3] = services(|_, _| {}).await;
    written_on_two((&rigs[0], &rigs[1]), FILE, LFN, (&chunks(), BORDER)).await;
    let unknown = FileId([7; 16]);
    for rig in &rigs {
        for (token, status) in [(STRANGER, "403"), ("unknown", "401"), ("", "401")] {
            let answer = headers(rig, "GET", &path(FILE), token).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{token}: {answer}");
            assert!(!answer.contains("location"), "{answer}");
        }
        let answer = headers(rig, "GET", &path(unknown), OWNER).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
    // The first service has a part, and learns that the file is certified.
    let marked = format!("{}?redirected=true", path(FILE));
    for (rig, status) in [(&rigs[0], "503"), (&rigs[1], "200"), (&rigs[2], "404")] {
        let expected = format!("HTTP/1.1 {status} ");
        eventually("the service answers by itself", async || {
            headers(rig, "HEAD", &marked, OWNER).await.starts_with(&expected)
        })
        .await;
    }
    let bad = headers(&rigs[2], "GET", &format!("{}?redirected=maybe", path(FILE)), OWNER).await;
    assert!(bad.starts_with("HTTP/1.1 400 "), "{bad}");
    // Without the service that certified it the file is not lost, but away.
    let [first, second, third] = rigs;
    second.server.stop().await;
    for rig in [&first, &third] {
        let error = read(&rig.remote(OWNER), &Readable::File(FILE), 0).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    }
}

/// Property: a part whose volume was given to another service is read from there, by the service that
/// certified the file and through it from any other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopted_part_is_read_through_other_services() {
    let [lost, certifier, heir, third]: [Rig; 4] = services(|_, _| {}).await;
    let chunks = chunks();
    written_on_two((&lost, &certifier), FILE, LFN, (&chunks, BORDER)).await;
    let Rig { server, directory: disks, .. } = lost;
    server.stop().await;
    let volume = disks.path().join("volume");
    let inspected = VolumeInspection::read(Arc::new(RealDisk), &volume).unwrap();
    inspected.hand_over(heir.server.service()).unwrap();
    let seeds = [certifier.server.address(), third.server.address()];
    let heir = heir
        .restarted(|settings| {
            link(settings, &seeds);
            settings.volumes.push(volume);
        })
        .await;
    acquainted(&[&certifier, &heir, &third]).await;
    for rig in [&certifier, &heir, &third] {
        let remote = rig.remote(OWNER);
        let found = read(&remote, &Readable::File(FILE), 0).await.unwrap();
        assert!(found == chunks.concat());
        assert!(read(&remote, &Readable::File(FILE), BORDER_BYTES - 7).await.unwrap() == found[24_993..]);
    }
}

/// Property: a client follows one redirect, and no second one, whatever a service answers.
#[tokio::test]
async fn client_follows_one_redirect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let redirecting = tokio::spawn(async move {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).await.unwrap();
            assert!(String::from_utf8_lossy(&request[..count]).contains("Bearer token"));
            let answer = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{address}{}\r\nContent-Length: 0\r\n\r\n",
                path(FILE)
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        listener
    });
    let settings = RemoteSettings {
        address: format!("http://{address}"),
        token: Some("token".to_owned()),
        tls: None,
        time: LONG,
    };
    let remote = Remote::new(settings).unwrap();
    let error = read(&remote, &Readable::File(FILE), 0).await.unwrap_err();
    assert!(error.kind == ErrorKind::Unavailable && error.message.contains("307"), "{error}");
    // Two requests came, and no third one waits.
    let listener = redirecting.await.unwrap();
    let third = tokio::time::timeout(std::time::Duration::from_millis(50), listener.accept()).await;
    assert!(third.is_err(), "a third request");
}
