//! The catalogue on a Cassandra or ScyllaDB cluster.
