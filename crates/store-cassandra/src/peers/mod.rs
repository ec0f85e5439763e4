//! Forwarding: of several servers that append, one does it for all.
//!
//! The log has one end, so servers that append at the same time only disturb each other. A server
//! that appends all the time has most of the needed rows cached. A server may see in the log that
//! an earlier opened one appends too. From then on it forwards its requests to that one.
//!
//! Correctness does not depend on it: an append holds or not by the log alone. This server carries
//! out a forwarded request without an answer itself, under the same operation id. If the other
//! server did it as well, the id makes one change of both. The target was always opened earlier, so
//! chains of forwarding end.

mod accept;
mod frames;
mod identity;
mod leader;
mod link;
mod task;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use exacat_model::{Error, Result};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, failed};
use crate::follower::Follower;
use crate::intake::Intake;
use crate::limits::SERVER_LISTED_EVERY;
use crate::log;
use crate::settings::PeersAt;
use identity::{Identity, ServerRecord};
pub(crate) use leader::Peers;
pub(crate) use link::Link;
use task::AbortOnDrop;

/// Begins to serve other servers and to forward to them.
pub(crate) async fn begin(follower: &Arc<Follower>, intake: &Intake) -> Result<Option<Serving>> {
    let settings = &follower.settings;
    let listener = match &settings.peers {
        PeersAt::Nowhere => return Ok(None),
        PeersAt::Anywhere => TcpListener::bind((towards(&settings.hosts).await?, 0)).await,
        PeersAt::Here(address) => TcpListener::bind(address).await,
    };
    let listener = listener.map_err(|error| {
        Error::invalid(format!("other servers cannot connect ({}): {error}", settings.peers))
    })?;
    let address = listener.local_addr().map_err(|error| failed("be shared with other servers", error))?;
    let identity = Arc::new(Identity::new(follower.peers.id)?);
    let record = identity.record(address);
    record.publish(&follower.cluster, 0).await?;
    let taking = accept::accept(listener, identity.accepting()?, intake.clone());
    follower.peers.join(identity);
    let (follower, listed) = (follower.clone(), record.clone());
    let joining = async move {
        meet_who_appends(&follower).await;
        stay_listed(&listed, &follower.cluster).await;
    };
    let task = tokio::spawn(async move {
        tokio::select! {
            () = taking => {}
            () = joining => {}
        }
    });
    Ok(Some(Serving { record, task: AbortOnDrop(task.abort_handle()) }))
}

/// Finds the own address that the cluster's nodes see.
async fn towards(hosts: &[String]) -> Result<std::net::IpAddr> {
    let mut why = "no host is named".to_owned();
    for host in hosts {
        let nodes = match tokio::net::lookup_host(host).await {
            Ok(nodes) => nodes,
            Err(error) => {
                why = error.to_string();
                continue;
            }
        };
        for node in nodes {
            // UDP connect sends nothing: it only chooses the route.
            let own = |any: &str| -> std::io::Result<SocketAddr> {
                let socket = UdpSocket::bind(any)?;
                socket.connect(node)?;
                socket.local_addr()
            };
            match own(if node.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }) {
                Ok(own) => return Ok(own.ip()),
                Err(error) => why = error.to_string(),
            }
        }
    }
    Err(failed("be reached", why))
}

/// Connects to the server that appended last, before there is anything to forward: it will probably
/// go on.
async fn meet_who_appends(follower: &Follower) {
    match log::last_by(&follower.cluster, follower.segment()).await {
        Ok(last) => last.into_iter().for_each(|id| follower.peers.saw(id)),
        Err(error) => tracing::debug!(%error, "the last appending server could not be read"),
    }
    if let Some(id) = follower.peers.to_meet(Instant::now()) {
        follower.peers.meet(&follower.cluster, id).await;
    }
}

/// Renews this server's entry in the table.
async fn stay_listed(record: &ServerRecord, cluster: &Cluster) {
    for number in 1.. {
        tokio::time::sleep(SERVER_LISTED_EVERY).await;
        if let Err(error) = record.publish(cluster, number).await {
            tracing::warn!(%error, "this server could not renew its record for other servers");
        }
    }
}

/// A server that others may forward to.
pub(crate) struct Serving {
    record: ServerRecord,
    task: AbortOnDrop,
}

impl Serving {
    /// Accepts no server any more. Connected ones find out by themselves.
    pub(crate) async fn end(&self, follower: &Follower) {
        self.task.0.abort();
        if let Err(error) = self.record.withdraw(&follower.cluster).await {
            tracing::debug!(%error, "this server could not withdraw its record: other servers find out");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn the_own_address_is_found() {
        let own = towards(&["127.0.0.1:9042".to_owned()]).await.unwrap();
        assert!(own.is_loopback());
        assert!(towards(&["a host without a port".to_owned()]).await.is_err());
        assert!(towards(&[]).await.is_err());
    }
}
