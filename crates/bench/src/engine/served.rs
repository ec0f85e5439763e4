//! Look-ups in the filled catalogue over the network, by bare frames: all over it, and in a hot
//! set.

use std::path::Path;
use std::sync::Arc;

use exacat_model::{Error, ErrorKind, FileRef, Operation, Result};

use super::sustained::Filled;
use super::{HOT, bytes_in, some_file};
use crate::measure::Load;
use crate::target::StartedServer;
use crate::workload::scatter;
use crate::{Report, frames, once};

/// Look-ups of a measurement, and questions made for it.
const LOOK_UPS: u64 = 1_000_000;
/// Connections.
const CONNECTIONS: usize = 4;
/// Requests in flight on each.
const DEPTH: usize = 32;

fn questions(filled: &Filled, choose: impl Fn(u64) -> u64) -> Result<Vec<Operation>> {
    let question = |call| {
        let file = some_file(filled, scatter(choose(call)))?;
        Ok(Operation::Whereis { files: vec![FileRef::Lfn(file)], site: None })
    };
    (0..LOOK_UPS.min(filled.files)).map(question).collect()
}

/// Serves the data directory, whose `store` was filled, and measures look-ups.
pub(crate) async fn run(filled: &Filled, data: &Path, report: &mut Report<'_>) -> Result<()> {
    let what = |of: &str| format!("whereis, {of}, single, {CONNECTIONS} x {DEPTH} in flight, bare frames");
    let (uniform, hot) = (what("uniform"), what("hot set"));
    if !report.wants(&uniform) && !report.wants(&hot) {
        return Ok(());
    }
    let cache = report.settings.cache_bytes.map(|bytes| bytes.to_string());
    let more: Vec<&str> = cache.iter().flat_map(|bytes| ["--cache", bytes]).collect();
    let (server, took) = StartedServer::start_with(data, &more).await?;
    let target = Arc::new(server.target(1).await?);
    report.show(&once(&target, "start to serving", 1, took, 0.0)?)?;
    let load =
        Load { lanes: CONNECTIONS, depth: DEPTH, calls: LOOK_UPS.min(filled.files), items_per_call: 1 };
    for (what, files) in [(uniform, u64::MAX), (hot, HOT)] {
        if report.wants(&what) {
            let asked = questions(filled, |call| scatter(call) % files)?;
            for round in ["first", "again"] {
                let what = format!("{what}, {round}");
                let socket = server.socket();
                report.show(&frames::drive(&target, &socket, &what, load, &asked).await?)?;
            }
        }
    }
    let memory = target.memory_bytes() >> 20;
    let on_disk = bytes_in(&data.join("store").join("runs")) >> 20;
    report.line(&format!("  memory of the server {memory} MB; runs on disk {on_disk} MB"))?;
    server.kill().map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}
