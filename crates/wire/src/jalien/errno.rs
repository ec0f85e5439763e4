//! Error numbers of the protocol, which are those of Linux, with their texts for clients.

/// Operation not permitted.
pub const EPERM: i32 = 1;
/// No such file or directory.
pub const ENOENT: i32 = 2;
/// Input/output error.
pub const EIO: i32 = 5;
/// Try again.
pub const EAGAIN: i32 = 11;
/// File exists.
pub const EEXIST: i32 = 17;
/// Not a directory.
pub const ENOTDIR: i32 = 20;
/// Target is a directory.
pub const EISDIR: i32 = 21;
/// Invalid argument.
pub const EINVAL: i32 = 22;
/// Function not implemented.
pub const ENOSYS: i32 = 38;
/// Invalid request descriptor: a failed `commit`.
pub const EBADR: i32 = 53;
/// No data available.
pub const ENODATA: i32 = 61;
/// Link has been severed: a file without replicas.
pub const ENOLINK: i32 = 67;
/// File descriptor in bad state: no storage element can be read from or written to.
pub const EBADFD: i32 = 77;
/// Remote I/O error.
pub const EREMOTEIO: i32 = 121;

/// Returns the text of an error number, as in the C library's `strerror`.
pub fn text(errno: i32) -> &'static str {
    match errno {
        EPERM => "Operation not permitted",
        ENOENT => "No such file or directory",
        EIO => "Input/output error",
        EAGAIN => "Resource temporarily unavailable",
        7 => "Argument list too long",
        13 => "Permission denied",
        16 => "Device or resource busy",
        EEXIST => "File exists",
        ENOTDIR => "Not a directory",
        EISDIR => "Is a directory",
        EINVAL => "Invalid argument",
        ENOSYS => "Function not implemented",
        39 => "Directory not empty",
        EBADR => "Invalid request descriptor",
        ENODATA => "No data available",
        ENOLINK => "Link has been severed",
        EBADFD => "File descriptor in bad state",
        110 => "Connection timed out",
        116 => "Stale file handle",
        EREMOTEIO => "Remote I/O error",
        122 => "Disk quota exceeded",
        _ => "Unknown error",
    }
}

/// Returns the text of an error in an answer: the text of the number, and the detail.
pub fn described(errno: i32, detail: &str) -> String {
    format!("{} : {detail}", text(errno))
}
