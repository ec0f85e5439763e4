//! Numbers at fixed places of headers and footers, little-endian.

/// Returns `N` bytes of a head of fixed layout. The caller has checked that the head has them.
pub fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Returns a number of such a head.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

/// Returns a number of such a head.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}
