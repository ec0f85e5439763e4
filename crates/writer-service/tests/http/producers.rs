//! Producers that stop at a bad moment: their memory comes back, and others go on.

use std::sync::Arc;

use exacat_wire::writer::{FileId, WriterId};

use crate::rig::{Producer, Rig, bytes, eventually};

const STOPPED: FileId = FileId([1; 16]);
const FILE: FileId = FileId([2; 16]);
const THIRD: FileId = FileId([3; 16]);
const BLOCK: usize = 1 << 20;

/// Property: a producer that stops in the middle of a chunk holds its block until it counts as silent, and
/// the blocks of its file until it counts as lost. Another one, whose file began before or after, then has
/// memory for its own. Nothing of the chunk counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_that_stops_in_a_chunk_gives_its_memory_back() {
    for is_first in [true, false] {
        let rig = Rig::with(Arc::default(), |settings| {
            settings.blocks = 6;
            settings.idle_ms = 4_000;
            settings.orphan_ms = 1_000;
        })
        .await;
        let address = rig.server.address();
        let mut stopped = Producer::connect_as(address, WriterId([1; 16])).await;
        let mut other = Producer::connect_as(address, WriterId([2; 16])).await;
        if is_first {
            // Its file is promised all memory, and the other one has to wait for it.
            stopped.open(STOPPED, 1, 0, "/run/stopped").await;
            other.open(FILE, 1, 0, "/run/other").await;
        } else {
            other.open(FILE, 1, 0, "/run/other").await;
            stopped.open(STOPPED, 1, 0, "/run/stopped").await;
        }
        stopped.half_a_chunk(STOPPED, 1, &bytes(1, BLOCK)).await;
        // More than the memory of the service.
        let chunks: Vec<Vec<u8>> = (0..12).map(|at| bytes(at, BLOCK)).collect();
        other.chunks(FILE, 1, 0, 0, &chunks).await;
        other.close(FILE, &chunks, &[(1, rig.server.service())]).await;
        stopped.ended().await;
        drop(other);
        let remote = rig.remote("");
        eventually("all memory is free", async || {
            let status = remote.status().await.unwrap();
            (status.connections, status.blocks_used, status.blocks_reserved) == (0, 0, 0)
        })
        .await;
        let status = remote.status().await.unwrap();
        assert_eq!((status.files.certified, status.chunks), (1, 12));
        assert_eq!(status.received_bytes, 12 * BLOCK as u64);
        let mut third = Producer::connect_as(address, WriterId([3; 16])).await;
        third.open(THIRD, 1, 0, "/run/third").await;
        third.chunks(THIRD, 1, 0, 0, &[bytes(3, BLOCK)]).await;
    }
}
