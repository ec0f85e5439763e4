//! The producer's side as a state machine: events come in, and each is kept until it is durable.

mod connecting;
mod sending;
mod state;

pub use state::{Appended, Closed, Event, Producer, ProducerOutput, ProducerSettings, StreamSettings};
