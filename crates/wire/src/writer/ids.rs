//! Identities of the writer protocol: 16 bytes each, made at random by their owner.

use std::fmt;

use exacat_model::canonical_newtype;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        canonical_newtype!($name);
    )*};
}

ids! {
    /// Producer. Stays the same over its connections.
    WriterId,
    /// File, chosen by its producer.
    FileId,
    /// Writer service. Stays the same over its restarts.
    ServiceId,
}
