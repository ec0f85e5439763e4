//! Numbers of the protocol: kinds of requests, responses and errors, and meanings of bits.

/// Version of the protocol that we speak: 5.1.1. Newer clients then use it too.
pub const PROTOCOL_VERSION: u32 = 0x511;
/// Version in words, as the reference server of that version sends it.
pub const SERVER_VERSION: &str = "v5.5.3";

/// Makes a table of numbers with names.
macro_rules! numbers {
    ($(#[$about:meta])* $table:ident: $kind:ty { $( $name:ident = $value:literal, $doc:literal; )* }) => {
        $(#[$about])*
        pub mod $table {
            $( #[doc = $doc] pub const $name: $kind = $value; )*

            /// Returns the name of a number, for people.
            pub fn name(number: $kind) -> Option<&'static str> {
                match number {
                    $( $value => Some(stringify!($name)), )*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    /// Kinds of requests.
    request: u16 {
        AUTH = 3000, "Shows credentials.";
        QUERY = 3001, "Asks for a checksum, the configuration, space.";
        CHMOD = 3002, "Sets a mode.";
        CLOSE = 3003, "Closes a file.";
        DIRLIST = 3004, "Lists a directory.";
        GPFILE = 3005, "Gets or puts a file.";
        PROTOCOL = 3006, "Agrees on the protocol.";
        LOGIN = 3007, "Says who one is.";
        MKDIR = 3008, "Makes a directory.";
        MV = 3009, "Moves.";
        OPEN = 3010, "Opens a file.";
        PING = 3011, "Are you there?";
        CHKPOINT = 3012, "Keeps what is written over.";
        READ = 3013, "Reads.";
        RM = 3014, "Removes a file.";
        RMDIR = 3015, "Removes a directory.";
        SYNC = 3016, "Writes to disk.";
        STAT = 3017, "Tells of a path.";
        SET = 3018, "Tells of oneself.";
        WRITE = 3019, "Writes.";
        FATTR = 3020, "Extended attributes.";
        PREPARE = 3021, "Stages files.";
        STATX = 3022, "Tells the kinds of paths.";
        ENDSESS = 3023, "Ends an earlier session.";
        BIND = 3024, "A further connection of a session.";
        READV = 3025, "Reads here and there.";
        PGWRITE = 3026, "Writes pages.";
        LOCATE = 3027, "Tells where a file is.";
        TRUNCATE = 3028, "Cuts a file.";
        SIGVER = 3029, "Signs the next request.";
        PGREAD = 3030, "Reads pages.";
        WRITEV = 3031, "Writes here and there.";
    }
}

numbers! {
    /// Kinds of responses.
    status: u16 {
        OK = 0, "It was done; the end of an answer.";
        OKSOFAR = 4000, "A part of an answer; more follows.";
        ATTN = 4001, "Unasked for.";
        AUTHMORE = 4002, "More credentials are needed.";
        ERROR = 4003, "It was not done.";
        REDIRECT = 4004, "It is to be asked elsewhere.";
        WAIT = 4005, "It is to be asked again, later.";
        WAITRESP = 4006, "The answer comes later.";
        STATUS = 4007, "An answer with checksums of its own.";
    }
}

numbers! {
    /// Kinds of errors.
    error: u32 {
        ARG_INVALID = 3000, "An argument makes no sense.";
        ARG_MISSING = 3001, "An argument is missing.";
        ARG_TOO_LONG = 3002, "An argument is too long.";
        FILE_LOCKED = 3003, "The file is locked.";
        FILE_NOT_OPEN = 3004, "The file is not open.";
        FS_ERROR = 3005, "The file system failed.";
        INVALID_REQUEST = 3006, "Not a request, or not now.";
        IO_ERROR = 3007, "Reading or writing failed.";
        NO_MEMORY = 3008, "No memory.";
        NO_SPACE = 3009, "No space.";
        NOT_AUTHORIZED = 3010, "Not allowed.";
        NOT_FOUND = 3011, "Not there.";
        SERVER_ERROR = 3012, "The server has a defect.";
        UNSUPPORTED = 3013, "Not done here.";
        NO_SERVER = 3014, "No server for that.";
        NOT_FILE = 3015, "Of another kind.";
        IS_DIRECTORY = 3016, "A directory.";
        CANCELLED = 3017, "Given up.";
        IT_EXISTS = 3018, "There already, or not empty.";
        CHECKSUM_ERROR = 3019, "A checksum is wrong.";
        IN_PROGRESS = 3020, "Being done.";
        OVER_QUOTA = 3021, "A quota is used up.";
        SIGNATURE_ERROR = 3022, "A signature is wrong.";
        DECRYPT_ERROR = 3023, "It cannot be decrypted.";
        OVERLOADED = 3024, "Too much to do.";
        READ_ONLY = 3025, "Nothing is written here.";
        BAD_PAYLOAD = 3026, "What it carries is wrong.";
        ATTRIBUTE_NOT_FOUND = 3027, "No such attribute.";
        TLS_REQUIRED = 3028, "Over TLS only.";
        NO_REPLICAS = 3029, "No replica.";
        AUTH_FAILED = 3030, "Not who one says one is.";
        IMPOSSIBLE = 3031, "It cannot be.";
        CONFLICT = 3032, "It contradicts.";
        TOO_MANY_ERRORS = 3033, "Too many errors.";
        REQUEST_TIMED_OUT = 3034, "No answer in time.";
    }
}

numbers! {
    /// Kinds of queries.
    query: u16 {
        STATS = 1, "Figures of the server.";
        PREPARE = 2, "How far staging is.";
        CHECKSUM = 3, "The checksum of a file.";
        XATTR = 4, "Attributes of a file.";
        SPACE = 5, "Space.";
        CHECKSUM_CANCEL = 6, "Gives up a checksum.";
        CONFIG = 7, "The configuration.";
        VISA = 8, "Who a file was opened by.";
        OPAQUE = 16, "The plug-in's own.";
        OPAQUE_FILE = 32, "The plug-in's own, of a path.";
        OPAQUE_HANDLE = 64, "The plug-in's own, of an open file.";
    }
}

/// Abilities that a client announces in the agreement on the protocol.
pub mod ability {
    /// Asks for the operations that must be signed.
    pub const SECURITY_REQUIREMENTS: u8 = 1;
    /// Can continue in TLS.
    pub const TLS: u8 = 2;
    /// Wants to continue in TLS.
    pub const WANT_TLS: u8 = 4;
}

/// Requests that a client announces to follow the agreement on the protocol.
pub mod expect {
    /// A login.
    pub const LOGIN: u8 = 3;
}

/// Abilities that a client announces in its login.
pub mod login_ability {
    /// Understands redirections to URLs.
    pub const FULL_URL: u8 = 1;
    /// Reaches addresses of IPv6 and of IPv4.
    pub const BOTH_ADDRESSES: u8 = 8;
    /// Understands late answers, as of version 5 of the protocol; in a byte of its own.
    pub const LATE_ANSWERS: u8 = 0x80 | 5;
}

/// Roles that a server announces in the agreement on the protocol.
pub mod role {
    /// Holds files.
    pub const SERVER: u32 = 0x1;
    /// Knows the locations of files: a client comes back if the redirection fails.
    pub const MANAGER: u32 = 0x2;
    /// Can read and write pages with checksums.
    pub const PAGES: u32 = 0x20_0000;
    /// Requires the client to switch to TLS now.
    pub const GO_TO_TLS: u32 = 0x4000_0000;
    /// Supports TLS.
    pub const HAS_TLS: u32 = 0x8000_0000;
    /// Requires TLS for the login.
    pub const TLS_LOGIN: u32 = 0x0400_0000;
    /// Requires TLS behind the login.
    pub const TLS_SESSION: u32 = 0x0800_0000;
}

/// Options of opening a file.
pub mod open {
    /// Overwrites an existing file.
    pub const DELETE: u16 = 0x2;
    /// Requires that the file does not exist.
    pub const NEW: u16 = 0x8;
    /// For reading.
    pub const READ: u16 = 0x10;
    /// For reading and writing.
    pub const UPDATE: u16 = 0x20;
    /// Permits answers in any order.
    pub const ASYNC: u16 = 0x40;
    /// Creates missing directories.
    pub const MAKE_PATH: u16 = 0x100;
    /// Wants a stat in the answer.
    pub const RETURN_STAT: u16 = 0x400;
    /// Writes at the end.
    pub const APPEND: u16 = 0x200;
    /// For writing.
    pub const WRITE_TO: u16 = 0x8000;
    /// Any option that changes something.
    pub const WRITING: u16 = DELETE | NEW | UPDATE | APPEND | WRITE_TO;
}

/// Options of a directory listing.
pub mod dirlist {
    /// Wants a stat of each name too.
    pub const STAT: u8 = 2;
    /// Wants a checksum of each name too.
    pub const CHECKSUM: u8 = 4;
}

/// Flags in a stat.
pub mod flag {
    /// Executable.
    pub const EXECUTABLE: u32 = 1;
    /// A directory.
    pub const DIRECTORY: u32 = 2;
    /// Neither a directory nor a file.
    pub const OTHER: u32 = 4;
    /// Its bytes are not immediately available.
    pub const OFFLINE: u32 = 8;
    /// Readable.
    pub const READABLE: u32 = 16;
    /// Writable.
    pub const WRITABLE: u32 = 32;
    /// Removed again unless its writer closes it successfully.
    pub const UNFINISHED: u32 = 64;
}

/// Option of a stat: the file system instead of the path.
pub const STAT_VFS: u8 = 1;
/// Option of mkdir: missing parents too.
pub const MKDIR_PARENTS: u8 = 1;
/// Option of a locate: each server once. Clients that read a file from several servers at once send
/// it.
pub const LOCATE_UNIQUE: u16 = 0x1;
/// Option of a locate: host names.
pub const LOCATE_PREFER_NAMES: u16 = 0x100;
