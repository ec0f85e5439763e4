//! The Rust client: one multiplexed connection, retries by outcome, batching, failover.
//!
//! ```no_run
//! use exacat_client::{Client, ClientSettings, Credentials, Target};
//! use exacat_model::{Lfn, operation::FileRef};
//!
//! # async fn example() -> exacat_model::Result<()> {
//! let target = Target::parse("unix:/home/me/exacat/exacat.sock")?;
//! let client = Client::connect(target, Credentials::local(), ClientSettings::default()).await?;
//! let file = FileRef::Lfn(Lfn::parse("/demo/data/f.root")?);
//! for replica in client.whereis(file, None).await?.replicas {
//!     # let _ = &replica.pfn; /*
//!     println!("{}", replica.pfn);
//!     # */
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The client retries a call when that may help and cannot harm: after a busy or unavailable
//! server, a lost connection, or an unknown outcome. A write keeps its operation id over all
//! retries, so it is done once. At the deadline, the error says what is known:
//!
//! - `Unavailable`: certainly not done;
//! - `Unknown`: may have been done; the error names the operation id for a retry.
//!
//! Dropping a call's future abandons it; a write that was sent may still be done.

mod calls;
mod client;
mod clock;
mod connection;
mod driver;
mod handshake;
mod inner;
mod pages;
mod pool;
mod retry;
mod settings;
mod shared;
mod slots;
mod target;
#[cfg(test)]
mod tests;
mod tls;

pub use calls::Caller;
pub use client::{CallOptions, Client};
pub use exacat_wire::native::{Behind, Identity, Secret};
pub use pages::AnswerStream;
pub use settings::{ClientSettings, limits};
pub use target::{Credentials, Endpoint, Target, Trust};
