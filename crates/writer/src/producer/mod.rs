//! The producer's side: packers put the events of streams into chunks, and the producer, a state machine,
//! keeps each chunk until it is durable.

mod connecting;
mod memory;
mod packing;
mod sending;
mod state;

pub use memory::{EventMemory, FileRoom};
pub use packing::{Chunk, FileEnd, FileNames, NotAppended, Packed, Packer, Position, StreamSettings};
pub use state::{Closed, Event, Producer, ProducerOutput, ProducerSettings, Settled, Uncertified};
