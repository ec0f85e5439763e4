//! Which node a statement is sent to first: as the driver would, but not to one that is stuck.
//!
//! A node that is paused, or whose disk hangs, keeps its connections: the driver goes on to choose it, and each statement waits until it is sent elsewhere as well. So
//! a node that was asked and answered nothing for a while, whatever it was asked, is asked last - until it answers, which it is given a chance to now and then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scylla::cluster::{ClusterState, NodeRef};
use scylla::errors::RequestAttemptError;
use scylla::policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo};
use scylla::routing::Shard;

use crate::nodes::Nodes;

/// The driver's policy, and what is seen of nodes.
#[derive(Debug)]
pub(crate) struct AroundStuck {
    inner: Arc<dyn LoadBalancingPolicy>,
    nodes: Arc<Nodes>,
}

impl AroundStuck {
    pub fn new(inner: Arc<dyn LoadBalancingPolicy>, nodes: Arc<Nodes>) -> Arc<Self> {
        Arc::new(AroundStuck { inner, nodes })
    }
}

fn address(node: NodeRef<'_>) -> SocketAddr {
    SocketAddr::new(node.address.ip(), node.address.port())
}

impl LoadBalancingPolicy for AroundStuck {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let first = self.inner.pick(request, cluster)?;
        if !self.nodes.to_be_avoided(address(first.0)) {
            return Some(first);
        }
        let mut others = self.inner.fallback(request, cluster);
        let other = others.find(|(node, _)| !self.nodes.is_stuck(address(node)));
        other.or(Some(first))
    }

    fn fallback<'a>(&'a self, request: &'a RoutingInfo<'_>, cluster: &'a ClusterState) -> FallbackPlan<'a> {
        let (stuck, others): (Vec<_>, Vec<_>) =
            self.inner.fallback(request, cluster).partition(|(node, _)| self.nodes.is_stuck(address(node)));
        Box::new(others.into_iter().chain(stuck))
    }

    fn on_request_success(&self, request: &RoutingInfo<'_>, latency: Duration, node: NodeRef<'_>) {
        self.inner.on_request_success(request, latency, node);
    }

    fn on_request_failure(
        &self,
        request: &RoutingInfo<'_>,
        latency: Duration,
        node: NodeRef<'_>,
        error: &RequestAttemptError,
    ) {
        self.inner.on_request_failure(request, latency, node, error);
    }

    fn name(&self) -> String {
        format!("{}, around nodes that are stuck", self.inner.name())
    }
}
