//! The AliEn catalogue's tables as JAliEn uses them, and the statements on them.

use std::fmt::Write;

/// The database.
pub const DATABASE: &str = "alice_data";

/// Statements that make it: one LFN table, one GUID table, its replicas.
pub const TABLES: [&str; 5] = [
    "CREATE DATABASE alice_data CHARACTER SET latin1 COLLATE latin1_general_cs",
    "USE alice_data",
    "CREATE TABLE L0L (
        entryId BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        owner VARCHAR(20) NOT NULL,
        gowner VARCHAR(20) NOT NULL,
        replicated SMALLINT NOT NULL DEFAULT 0,
        ctime TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        guidtime CHAR(8) DEFAULT NULL,
        jobid BIGINT DEFAULT NULL,
        aclId MEDIUMINT DEFAULT NULL,
        lfn VARCHAR(255) DEFAULT NULL,
        broken SMALLINT NOT NULL DEFAULT 0,
        expiretime DATETIME DEFAULT NULL,
        size BIGINT NOT NULL DEFAULT 0,
        dir BIGINT DEFAULT NULL,
        type CHAR(1) NOT NULL DEFAULT 'f',
        guid BINARY(16) DEFAULT NULL,
        md5 VARCHAR(32) DEFAULT NULL,
        perm CHAR(3) NOT NULL,
        UNIQUE KEY lfn (lfn),
        KEY dir (dir),
        KEY guid (guid),
        KEY type (type),
        KEY ctime (ctime),
        KEY guidtime (guidtime)
    ) ENGINE=InnoDB",
    "CREATE TABLE G0L (
        guidId BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        ctime TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
        owner VARCHAR(20) DEFAULT NULL,
        ref INT DEFAULT 0,
        jobid BIGINT DEFAULT NULL,
        seStringlist VARCHAR(255) DEFAULT ',',
        seAutoStringlist VARCHAR(255) DEFAULT ',',
        aclId INT DEFAULT NULL,
        expiretime DATETIME DEFAULT NULL,
        size BIGINT NOT NULL DEFAULT 0,
        gowner VARCHAR(20) DEFAULT NULL,
        guid BINARY(16) DEFAULT NULL,
        type CHAR(1) DEFAULT NULL,
        md5 VARCHAR(32) DEFAULT NULL,
        perm CHAR(3) DEFAULT NULL,
        UNIQUE KEY guid (guid),
        KEY ctime (ctime)
    ) ENGINE=InnoDB",
    "CREATE TABLE G0L_PFN (
        guidId BIGINT NOT NULL,
        pfn VARCHAR(255) DEFAULT NULL,
        seNumber INT NOT NULL,
        KEY guid_ind (guidId),
        KEY seNumber (seNumber)
    ) ENGINE=InnoDB",
];

/// The tables, as their files are called.
pub const TABLE_NAMES: [&str; 3] = ["L0L", "G0L", "G0L_PFN"];

/// A further `VALUES` for each of `rows`.
fn insert(head: &str, row: &str, rows: usize) -> String {
    let mut text = String::with_capacity(head.len() + rows * (row.len() + 1));
    text.push_str(head);
    for index in 0..rows {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{row}", if index == 0 { " VALUES " } else { "," });
    }
    text
}

/// LFNs of files: lfn, ctime in s, guidtime, jobid, size, dir, guid, md5.
pub fn insert_files(rows: usize) -> String {
    insert(
        "INSERT INTO L0L (owner, gowner, type, perm, lfn, ctime, guidtime, jobid, size, dir, guid, md5)",
        "('aliprod','aliprod','f','755',?,FROM_UNIXTIME(?),?,?,?,?,?,?)",
        rows,
    )
}

/// GUIDs: ctime in s, jobid, seStringlist, size, guid, md5.
pub fn insert_guids(rows: usize) -> String {
    insert(
        "INSERT INTO G0L (owner, gowner, ref, type, perm, ctime, jobid, seStringlist, size, guid, md5)",
        "('aliprod','aliprod',1,'f','755',FROM_UNIXTIME(?),?,?,?,?,?)",
        rows,
    )
}

/// Replicas: guidId, pfn, seNumber.
pub fn insert_pfns(rows: usize) -> String {
    insert("INSERT INTO G0L_PFN (guidId, pfn, seNumber)", "(?,?,?)", rows)
}

/// Directories: lfn, dir.
pub fn insert_directories(rows: usize) -> String {
    insert(
        "INSERT INTO L0L (owner, gowner, type, perm, lfn, dir)",
        "('aliprod','aliprod','d','755',?,?)",
        rows,
    )
}

/// The first of JAliEn's three statements for whereis: the LFN.
pub const FIND_LFN: &str = "SELECT * FROM L0L WHERE lfn = ? OR lfn = CONCAT(?, '/')";
/// The second: its GUID.
pub const FIND_GUID: &str = "SELECT * FROM G0L WHERE guid = ?";
/// The third: its replicas.
pub const FIND_PFNS: &str = "SELECT pfn, seNumber FROM G0L_PFN WHERE guidId = ?";

/// Size and replicas of so many LFNs in one statement.
pub fn join_lfns(lfns: usize) -> String {
    let places = vec!["?"; lfns].join(",");
    format!(
        "SELECT L0L.lfn, L0L.size, L0L.md5, L0L.guid, G0L_PFN.pfn, G0L_PFN.seNumber \
         FROM L0L JOIN G0L ON G0L.guid = L0L.guid JOIN G0L_PFN ON G0L_PFN.guidId = G0L.guidId \
         WHERE L0L.lfn IN ({places})"
    )
}

/// The same of one GUID.
pub const JOIN_GUID: &str = "SELECT G0L.size, G0L.md5, G0L_PFN.pfn, G0L_PFN.seNumber FROM G0L \
     JOIN G0L_PFN ON G0L_PFN.guidId = G0L.guidId WHERE G0L.guid = ?";

/// Everything in a directory.
pub const LIST: &str = "SELECT * FROM L0L WHERE dir = ? ORDER BY lfn";

/// Files and bytes below a prefix.
pub const USAGE: &str =
    "SELECT COUNT(*) AS files, SUM(size) AS bytes FROM L0L WHERE lfn LIKE CONCAT(?, '%') AND type = 'f'";

/// Renames everything below a prefix: new prefix, bytes of the old one plus 1, old prefix.
pub const RENAME_ALL: &str =
    "UPDATE L0L SET lfn = CONCAT(?, SUBSTRING(lfn, ?)) WHERE lfn LIKE CONCAT(?, '%')";

/// A directory by its LFN.
pub const FIND_DIRECTORY: &str = "SELECT entryId FROM L0L WHERE lfn = ?";
/// Entries of a directory, for moving it.
pub const CHILDREN: &str = "SELECT entryId, lfn, type FROM L0L WHERE dir = ?";
/// An entry under a new name, in another directory: lfn, dir, entryId of the old one.
pub const COPY_ENTRY: &str = "INSERT INTO L0L (owner, gowner, replicated, ctime, guidtime, jobid, aclId, lfn, broken, \
     expiretime, size, dir, type, guid, md5, perm) SELECT owner, gowner, replicated, ctime, guidtime, jobid, aclId, ?, broken, \
     expiretime, size, ?, type, guid, md5, perm FROM L0L WHERE entryId = ?";
/// And the old one away.
pub const DELETE_ENTRY: &str = "DELETE FROM L0L WHERE entryId = ?";
