//! The conformance suite on a ring.

use exacat_testkit::cassandra::{CassandraFactory, ring};

exacat_testkit::conformance_suite!(CassandraFactory::on(ring()), ignore = "needs a ring: make test-cluster");
