//! The memory store (to be written).
